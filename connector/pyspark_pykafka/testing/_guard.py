"""Owns a test server's processes and folder, so that both go when whoever asked for them goes.

Run as a script by its path: it imports the standard library only, so it is up in a few
milliseconds. Each line on standard input is a request, each line on standard output its answer.
End of input, or the death of the parent, ends every process and removes the folder.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

PARENT_CHECK_SECONDS = 0.5
PR_SET_PDEATHSIG = 1
ENDING_SIGNALS = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)

Children = dict[str, "subprocess.Popen[bytes]"]


def main(folder: Path) -> None:
    """Serve until the end, then leave nothing behind."""
    # What ends the parent ends us, by the pipe; a signal halfway through a start would not.
    for number in ENDING_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    children: Children = {}
    try:
        tell({"folder": str(folder)})
        serve(children)
    finally:
        end(children)
        shutil.rmtree(folder, ignore_errors=True)


def serve(children: Children) -> None:
    """Answer requests until there is nobody left to answer."""
    parent = os.getppid()
    pending = b""
    # A forked copy of the parent holds the pipe open as well, so its end is not a sure sign.
    while os.getppid() == parent:
        if not select.select([0], [], [], PARENT_CHECK_SECONDS)[0]:
            continue
        received = os.read(0, 65536)
        if not received:
            return
        *lines, pending = (pending + received).split(b"\n")
        for line in lines:
            tell(answer(children, json.loads(line)))


def tell(message: dict[str, Any]) -> None:
    """Write a line to whoever asked."""
    os.write(1, json.dumps(message).encode() + b"\n")


def answer(children: Children, request: dict[str, Any]) -> dict[str, Any]:
    """Carry out one request; a failure is told, not raised, since the others depend on us."""
    try:
        if request["do"] == "start":
            children[request["name"]] = launch(request["argv"], request["log"])
        elif request["do"] == "signal":
            children[request["name"]].send_signal(request["number"])
        child = children[request["name"]]
        return {"pid": child.pid, "code": child.poll()}
    except (OSError, KeyError) as error:
        return {"error": f"{type(error).__name__}: {error}"}


def launch(argv: list[str], log: str) -> subprocess.Popen[bytes]:
    """Start a process that writes to a log and can't outlive us."""
    with Path(log).open("ab") as out:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=Path(log).parent,
            preexec_fn=prepare_child,  # noqa: PLW1509 (the guard has one thread)
        )


def prepare_child() -> None:
    """Hear signals again, and on Linux be killed if the guard itself is killed."""
    for number in ENDING_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def end(children: Children) -> None:
    """Kill every process and wait until each is gone, so that its files can go as well."""
    for child in children.values():
        child.kill()
    for child in children.values():
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=10)


if __name__ == "__main__":
    main(Path(tempfile.mkdtemp(prefix=sys.argv[1], dir=sys.argv[2])))
