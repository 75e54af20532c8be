"""
Driver programs in processes of their own, which can be killed and restarted.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from tests.support.processes import command_line
from tests.support.short_jvm import OPTIONS, SHORT_DRIVER

from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

JOB = Path(__file__).with_name("job.py")
READY_SECONDS = 180.0
STOP_SECONDS = 30.0
EXECUTOR, WORKER = "CoarseGrainedExecutorBackend", "pyspark.daemon"
#: The module of the driver-side process that plans a Python source.
PLANNER = "pyspark.sql.streaming.python_streaming_source_runner"

CONF = {
    "spark.master": "local-cluster[2,2,1024]",
    "spark.driver.memory": "1g",
    "spark.executor.memory": "768m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "3",
    "spark.sql.session.timeZone": "UTC",
    # Faults kill executors repeatedly.
    "spark.deploy.maxExecutorRetries": "-1",
    # Several queries share a driver.
    "spark.scheduler.mode": "FAIR",
    **SHORT_DRIVER,
    "spark.executor.extraJavaOptions": OPTIONS,
}


def _has(process: psutil.Process, text: str) -> bool:
    return any(text in word for word in command_line(process))


@dataclass
class Driver:
    """
    One driver program, and the queries that its next process continues.

    ``starts`` counts its processes, ``query_starts`` the starts of queries in the current process.
    """

    name: str
    folder: Path
    #: The environment variables of its processes, in addition to those of this process.
    environment: Mapping[str, str]
    starts: int = 0
    query_starts: int = 0
    queries: dict[str, dict[str, Any]] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    _process: subprocess.Popen[str] | None = None
    _read: int = 0
    _measurements: int = 0
    _polling: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> None:
        """
        Start a process and, once Spark is ready, the queries of the previous one.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self.starts += 1
        self.query_starts = 0
        arguments = {
            "conf": {**CONF, "spark.app.name": f"soak-{self.name}"},
            "events": str(self._events_file),
        }
        self._process = subprocess.Popen(
            [sys.executable, str(JOB), json.dumps(arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=(self.folder / f"driver-{self.starts}.log").open("w"),
            text=True,
            start_new_session=True,
            cwd=self.folder,
            env={**os.environ, **self.environment},
        )
        earlier_count = len(self.events)

        def missing() -> str | None:
            self.poll()
            if not self.is_alive:
                return f"the driver {self.name} has ended: {self.log()}"
            ready = any(event["event"] == "ready" for event in self.events[earlier_count:])
            return None if ready else f"the driver {self.name} is starting"

        wait_until(missing, READY_SECONDS)
        for name, query in self.queries.items():
            self._send(do="start", name=name, query=query)

    @property
    def is_alive(self) -> bool:
        """
        Whether the process is running.
        """
        return self._process is not None and self._process.poll() is None

    def run(self, name: str, query: dict[str, Any]) -> None:
        """
        Start a query, now and in each later process.
        """
        self.queries[name] = query
        self._send(do="start", name=name, query=query)

    def finish(self, name: str) -> None:
        """
        Let a query write all records that exist, and stop.
        """
        self._send(do="finish", name=name)

    def forget(self, name: str) -> None:
        """
        Do not start a query again.
        """
        self.queries.pop(name, None)

    def measure(self, seconds: float) -> dict[str, int]:
        """
        Return the resources of the driver's Python and JVM after a garbage collection.
        """
        self._measurements += 1
        number = self._measurements
        self._send(do="measure", id=number)

        def measurement() -> dict[str, Any] | None:
            self.poll()
            events = [
                event
                for event in self.events
                if event["event"] == "measured" and event["id"] == number
            ]
            return events[0] if events else None

        result: dict[str, Any] = {}

        def missing() -> str | None:
            result.update(measurement() or {})
            return None if result else f"the driver {self.name} has sent no measurement"

        wait_until(missing, seconds)
        return {name: value for name, value in result.items() if name not in {"event", "at", "id"}}

    def poll(self) -> list[dict[str, Any]]:
        """
        Read new events and return them.
        """
        if not self._events_file.exists():
            return []
        with self._polling:
            with self._events_file.open("rb") as file:
                file.seek(self._read)
                data = file.read()
            complete_lines = data[: data.rfind(b"\n") + 1]
            self._read += len(complete_lines)
            new = [json.loads(line) for line in complete_lines.splitlines()]
            self.query_starts += sum(event["event"] == "started" for event in new)
            self.events += new
            return new

    def processes(self) -> list[psutil.Process]:
        """
        Return the process and all its descendants.
        """
        if self._process is None:
            return []
        try:
            parent = psutil.Process(self._process.pid)
            return [parent, *parent.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def executors(self) -> list[psutil.Process]:
        """
        Return the executors' JVMs.
        """
        return [process for process in self.processes() if _has(process, EXECUTOR)]

    def workers(self) -> list[psutil.Process]:
        """
        Return the executors' Python workers, without the daemons that fork them.
        """
        return [
            worker
            for executor in self.executors()
            for daemon in _children(executor)
            for worker in _children(daemon)
        ]

    def planners(self) -> list[psutil.Process]:
        """
        Return the processes that plan sources on the driver.
        """
        return [process for process in self.processes() if _has(process, PLANNER)]

    def pause(self) -> None:
        """
        Freeze the driver with all its processes.
        """
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """
        Let the driver continue.
        """
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """
        Kill the driver with all its processes at once, as a power cut would.
        """
        # Stopped first: otherwise a worker could continue for a moment without its driver.
        processes = self.processes()
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for process in processes:
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(number)
        if self._process is not None:
            self._process.wait(STOP_SECONDS)
        self.poll()

    def log(self) -> str:
        """
        Return the end of the current process's output.
        """
        return (self.folder / f"driver-{self.starts}.log").read_text(errors="replace")[-4_000:]

    @property
    def _events_file(self) -> Path:
        return self.folder / "events.jsonl"

    def _send(self, **command: Any) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        # A driver that has just been killed gets its queries when it starts again.
        with suppress(BrokenPipeError):
            self._process.stdin.write(f"{json.dumps(command)}\n")
            self._process.stdin.flush()

    def _signal(self, number: signal.Signals) -> None:
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)


def _children(process: psutil.Process) -> Iterator[psutil.Process]:
    with suppress(psutil.Error):
        yield from process.children()
