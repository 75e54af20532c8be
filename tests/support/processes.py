"""
Processes that may end while a test looks at them.
"""

from __future__ import annotations

import psutil


def command_line(process: psutil.Process) -> list[str]:
    """
    Return the words of a process's command, none if it has ended.
    """
    try:
        return list(process.cmdline())
    # Includes zombies: processes that have ended, but whose parents have not waited for them.
    except psutil.NoSuchProcess:
        return []


def broker_processes(parent: int) -> list[psutil.Process]:
    """
    Return the processes of brokers that a process or its children started.
    """
    children = psutil.Process(parent).children(recursive=True)
    return [process for process in children if "kafka.Kafka" in command_line(process)]
