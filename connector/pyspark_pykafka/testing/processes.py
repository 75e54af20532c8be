"""Starts a server's processes behind a guard, so that none outlives the Python that wanted them."""

from __future__ import annotations

import contextlib
import json
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from .waiting import NotReadyError, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

GUARD = Path(__file__).with_name("_guard.py")
ANSWER_SECONDS = 20.0
END_SECONDS = 20.0
LOG_EXCERPT = 4000
START_ATTEMPTS = 3
PORT_TAKEN = "Address already in use"

Started = TypeVar("Started")


class ServerError(RuntimeError):
    """A test server did not start, stop or answer as it must."""


class Processes:
    """A group of processes and one temporary folder, all gone after `close()` or our own death."""

    def __init__(self, kind: str, parent: Path | None = None) -> None:
        """Make the folder, within the system's folder for temporary files or another one."""
        place = str(parent or tempfile.gettempdir())
        self._turn = threading.Lock()
        self._began: dict[str, int] = {}
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", str(GUARD), f"pykafka-{kind}-", place],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Ctrl-C reaches every process of the terminal's group; the guard must outlive it.
            start_new_session=True,
        )
        self.folder = Path(json.loads(self._line())["folder"])

    def start(self, name: str, argv: list[str]) -> int:
        """Start a process whose output goes to its log, and return its process id."""
        log = self.log(name)
        self._began[name] = log.stat().st_size if log.exists() else 0
        pid: int = self._ask({"do": "start", "name": name, "argv": argv, "log": str(log)})["pid"]
        return pid

    def send(self, name: str, number: signal.Signals) -> None:
        """Send a process a signal; one that has ended is left alone."""
        self._ask({"do": "signal", "name": name, "number": int(number)})

    def exit_code(self, name: str) -> int | None:
        """Return how the process ended (negative: by that signal), or None while it runs."""
        code: int | None = self._ask({"do": "poll", "name": name})["code"]
        return code

    def run(self, name: str, argv: list[str], seconds: float) -> None:
        """Run a process to its end; any exit code but 0 is an error."""
        self.start(name, argv)
        try:
            wait_until(lambda: self._still_runs(name), seconds)
        except NotReadyError as error:
            msg = f"{error}{self.tail(name)}"
            raise ServerError(msg) from error
        code = self.exit_code(name)
        if code != 0:
            msg = f"{name} ended with exit code {code}.{self.tail(name)}"
            raise ServerError(msg)

    def wait_ready(self, name: str, missing: Callable[[], str | None], seconds: float) -> None:
        """Wait until nothing is missing; a process that ends meanwhile is an error at once."""

        def still_missing() -> str | None:
            code = self.exit_code(name)
            if code is not None:
                msg = f"{name} ended with exit code {code}.{self.tail(name)}"
                raise ServerError(msg)
            return missing()

        try:
            wait_until(still_missing, seconds)
        except NotReadyError as error:
            msg = f"{name} is not ready. {error}{self.tail(name)}"
            raise ServerError(msg) from error

    def end(self, name: str, number: signal.Signals, seconds: float) -> None:
        """End a process by a signal, and by SIGKILL if it still runs after so many seconds."""
        self.send(name, number)
        # A paused process hears nothing else.
        self.send(name, signal.SIGCONT)
        try:
            wait_until(lambda: self._still_runs(name), seconds)
        except NotReadyError:
            self.send(name, signal.SIGKILL)
            wait_until(lambda: self._still_runs(name), seconds)

    def log(self, name: str) -> Path:
        """Return where a process's output goes."""
        return self.folder / f"{name}.log"

    def tail(self, name: str) -> str:
        """Return what a process has logged of interest, as the last part of an error message."""
        log = self.log(name)
        if not log.exists():
            return " It has written no log."
        text = log.read_bytes()[self._began.get(name, 0) :].decode(errors="replace").strip()
        # A server that fails goes on to log its whole shutdown: what matters is before that.
        error = text.find(" ERROR ")
        if error >= 0:
            begin = text.rfind("\n", 0, error) + 1
            return f" Its log from the first error on:\n{text[begin : begin + LOG_EXCERPT]}"
        return f" The end of its log:\n{text[-LOG_EXCERPT:]}" if text else " Its log is empty."

    def close(self) -> None:
        """Kill every process and remove the folder; a second call does nothing."""
        for pipe in (self._guard.stdin, self._guard.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        self._guard.wait(timeout=END_SECONDS)
        # The guard has done this, unless it was killed itself.
        shutil.rmtree(self.folder, ignore_errors=True)

    def _still_runs(self, name: str) -> str | None:
        return f"{name} still runs." if self.exit_code(name) is None else None

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            with self._turn:
                line = self._exchange(json.dumps(request).encode() + b"\n")
        except ServerError:
            self.close()
            raise
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            msg = f"{request['name']} can't {request['do']}: {reply['error']}"
            raise ServerError(msg)
        return reply

    def _exchange(self, request: bytes) -> bytes:
        stdin = self._guard.stdin
        if stdin is None or stdin.closed:
            msg = "These processes were closed; start a new cluster."
            raise ServerError(msg)
        # A guard that is gone shows as an answer that does not come.
        with contextlib.suppress(BrokenPipeError):
            stdin.write(request)
            stdin.flush()
        return self._line()

    def _line(self) -> bytes:
        stdout = self._guard.stdout
        assert stdout is not None
        ready, _, _ = select.select([stdout], [], [], ANSWER_SECONDS)
        line: bytes = stdout.readline() if ready else b""
        if not line:
            msg = "The process that guards this server gave no answer; start the server anew."
            raise ServerError(msg)
        return line


def retry_on_taken_port(start: Callable[[], Started]) -> Started:
    """Start a server again on other ports if a program took one after we had found it free."""
    for _ in range(START_ATTEMPTS - 1):
        try:
            return start()
        except ServerError as error:
            if PORT_TAKEN not in str(error):
                raise
    return start()
