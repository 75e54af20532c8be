"""
A process that owns a test server's processes and folder, and removes both when its parent ends.

It runs as a script and imports the standard library only, so it starts within a few milliseconds.
Each line on standard input is a JSON request, each line on standard output its response. At the end
of input, or when the parent dies, it kills every process and removes the folder.
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
    """
    Serve requests until the parent ends, then clean up.
    """
    # Signals are ignored; only the parent's end ends the guard. A signal during a start could leak
    # a process.
    for number in ENDING_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    children: Children = {}
    try:
        reply({"folder": str(folder)})
        serve(children)
    finally:
        kill_all(children)
        shutil.rmtree(folder, ignore_errors=True)


def serve(children: Children) -> None:
    """
    Handle requests until the parent has ended.
    """
    parent = os.getppid()
    pending = b""
    # A fork of the parent may hold the pipe open, so end of input alone is not reliable.
    while os.getppid() == parent:
        if not select.select([0], [], [], PARENT_CHECK_SECONDS)[0]:
            continue
        received = os.read(0, 65536)
        if not received:
            return
        *lines, pending = (pending + received).split(b"\n")
        for line in lines:
            reply(handle(children, json.loads(line)))


def reply(message: dict[str, Any]) -> None:
    """
    Write a response to the parent.
    """
    os.write(1, json.dumps(message).encode() + b"\n")


def handle(children: Children, request: dict[str, Any]) -> dict[str, Any]:
    """
    Return the response to a request; errors are returned, too, so that the guard keeps running.
    """
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
    """
    Start a process that writes to a log and cannot outlive the guard.
    """
    with Path(log).open("ab") as log_file:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log_file,
            stderr=subprocess.STDOUT,
            cwd=Path(log).parent,
            preexec_fn=prepare_child,  # noqa: PLW1509 (the guard has one thread)
        )


def prepare_child() -> None:
    """
    Restore signal handling; on Linux, also die with the guard (PR_SET_PDEATHSIG).
    """
    for number in ENDING_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def kill_all(children: Children) -> None:
    """
    Kill every process and wait for it, so that its files can be removed.
    """
    for child in children.values():
        child.kill()
    for child in children.values():
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=10)


if __name__ == "__main__":
    main(Path(tempfile.mkdtemp(prefix=sys.argv[1], dir=sys.argv[2])))
