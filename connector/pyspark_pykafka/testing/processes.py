"""
Starts server processes through a guard process, so that none outlives this Python process.
"""

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
RESPONSE_SECONDS = 20.0
END_SECONDS = 20.0
LOG_EXCERPT = 4000
START_ATTEMPTS = 3
PORT_TAKEN = "Address already in use"

Started = TypeVar("Started")


class ServerError(RuntimeError):
    """
    A test server did not start, stop or respond as expected.
    """


class Processes:
    """
    Processes that share a temporary folder. `close()` kills the processes and removes the folder;
    so does the end of this Python process.
    """

    def __init__(self, kind: str, parent: Path | None = None) -> None:
        """
        Create the folder in `parent`, or in the system's folder for temporary files.
        """
        base = str(parent or tempfile.gettempdir())
        self._lock = threading.Lock()
        self._log_start: dict[str, int] = {}
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", str(GUARD), f"pykafka-{kind}-", base],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Ctrl-C signals the whole process group of the terminal; the guard must survive it.
            start_new_session=True,
        )
        self.folder = Path(json.loads(self._read_line())["folder"])

    def start(self, name: str, argv: list[str]) -> int:
        """
        Start a process whose output goes to its log, and return its process id.
        """
        log = self.log(name)
        self._log_start[name] = log.stat().st_size if log.exists() else 0
        pid: int = self._request({"do": "start", "name": name, "argv": argv, "log": str(log)})[
            "pid"
        ]
        return pid

    def send(self, name: str, number: signal.Signals) -> None:
        """
        Send a signal to a process, unless it has ended.
        """
        self._request({"do": "signal", "name": name, "number": int(number)})

    def exit_code(self, name: str) -> int | None:
        """
        Return a process's exit code, or None while the process runs.

        A negative code is the number of the signal that ended the process.
        """
        code: int | None = self._request({"do": "poll", "name": name})["code"]
        return code

    def run(self, name: str, argv: list[str], seconds: float) -> None:
        """
        Run a process to its end; raise `ServerError` unless the exit code is 0.
        """
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
        """
        Wait until `missing()` returns None; raise `ServerError` at once if the process exits.
        """

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
        """
        End a process by a signal, and by SIGKILL if it still runs after `seconds`.
        """
        self.send(name, number)
        # A suspended process handles the signal only once it continues.
        self.send(name, signal.SIGCONT)
        try:
            wait_until(lambda: self._still_runs(name), seconds)
        except NotReadyError:
            self.send(name, signal.SIGKILL)
            wait_until(lambda: self._still_runs(name), seconds)

    def log(self, name: str) -> Path:
        """
        Return the log file of a process.
        """
        return self.folder / f"{name}.log"

    def tail(self, name: str) -> str:
        """
        Return the relevant part of a process's log, for the end of an error message.
        """
        log = self.log(name)
        if not log.exists():
            return " It has written no log."
        text = log.read_bytes()[self._log_start.get(name, 0) :].decode(errors="replace").strip()
        # A failing server logs its whole shutdown after the error, so the log's end does not help.
        error = text.find(" ERROR ")
        if error >= 0:
            start = text.rfind("\n", 0, error) + 1
            return f" Its log from the first error on:\n{text[start : start + LOG_EXCERPT]}"
        return f" The end of its log:\n{text[-LOG_EXCERPT:]}" if text else " Its log is empty."

    def close(self) -> None:
        """
        Kill every process and remove the folder; a second call does nothing.
        """
        for pipe in (self._guard.stdin, self._guard.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        self._guard.wait(timeout=END_SECONDS)
        # The guard does this too, unless it was killed.
        shutil.rmtree(self.folder, ignore_errors=True)

    def _still_runs(self, name: str) -> str | None:
        return f"{name} still runs." if self.exit_code(name) is None else None

    def _request(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            with self._lock:
                line = self._exchange(json.dumps(request).encode() + b"\n")
        except ServerError:
            self.close()
            raise
        response: dict[str, Any] = json.loads(line)
        if "error" in response:
            msg = f"{request['name']}: {request['do']} failed: {response['error']}"
            raise ServerError(msg)
        return response

    def _exchange(self, request: bytes) -> bytes:
        stdin = self._guard.stdin
        if stdin is None or stdin.closed:
            msg = "These processes were closed; start a new server."
            raise ServerError(msg)
        # If the guard is gone, reading its response fails below.
        with contextlib.suppress(BrokenPipeError):
            stdin.write(request)
            stdin.flush()
        return self._read_line()

    def _read_line(self) -> bytes:
        stdout = self._guard.stdout
        assert stdout is not None
        ready, _, _ = select.select([stdout], [], [], RESPONSE_SECONDS)
        line: bytes = stdout.readline() if ready else b""
        if not line:
            msg = "The guard process of this server did not respond; start the server again."
            raise ServerError(msg)
        return line


def retry_on_taken_port(start: Callable[[], Started]) -> Started:
    """
    Start a server; start it on other ports if another program has just taken one of its ports.
    """
    for _ in range(START_ATTEMPTS - 1):
        try:
            return start()
        except ServerError as error:
            if PORT_TAKEN not in str(error):
                raise
    return start()
