"""
The command lines of processes, of which some have ended.
"""

from __future__ import annotations

import os
import subprocess
import sys

import psutil
from tests.support.processes import broker_processes, command_line


def test_a_zombie_has_no_command_line() -> None:
    """
    A process that has ended, but whose parent has not waited for it, has no command line.
    """
    arguments = [sys.executable, "-c", "input()", "kafka.Kafka"]
    child = subprocess.Popen(arguments, stdin=subprocess.PIPE)
    process = psutil.Process(child.pid)
    assert command_line(process) == arguments
    assert process in broker_processes(os.getpid())

    child.kill()
    # Waits for the end, and leaves the exit code to the parent.
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert process.status() == psutil.STATUS_ZOMBIE
    assert command_line(process) == []
    assert process not in broker_processes(os.getpid())
    child.communicate()
