"""
Injects faults into a cluster that this process has started: kills, pauses or stops one broker after
another.
"""

from __future__ import annotations

import threading
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_pykafka.testing import KafkaCluster

DOWN_SECONDS = 5.0
CALM_SECONDS = 5.0


class Nemesis:
    """
    A thread that injects faults until it is stopped. Each broker is healed before the next fault.
    """

    def __init__(self, cluster: KafkaCluster, on_event: Callable[[str], None]) -> None:
        self.strikes = 0
        self._cluster = cluster
        self._on_event = on_event
        self.error: Exception | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pykafka-verify-nemesis")

    def start(self) -> None:
        """
        Start the thread.
        """
        self._thread.start()

    def stop(self) -> None:
        """
        Stop, and return when all brokers are back. If one does not come back, ``error`` is the
        reason.
        """
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            for step in count():
                if self._stopping.wait(CALM_SECONDS):
                    return
                self._strike(step)
        except Exception as error:  # noqa: BLE001 (the run raises it)
            self.error = error

    def _strike(self, step: int) -> None:
        broker = step % self._cluster.brokers + 1
        # Each round pairs brokers and actions differently.
        action = (step + step // self._cluster.brokers) % 3
        name, strike, heal = (
            ("kill", self._cluster.kill, self._cluster.restart),
            ("pause", self._cluster.pause, self._cluster.resume),
            ("shut down", self._cluster.stop, self._cluster.restart),
        )[action]
        self.strikes += 1
        self._on_event(f"nemesis: {name} broker {broker}")
        strike(broker)
        self._stopping.wait(DOWN_SECONDS)
        heal(broker)
        self._on_event(f"nemesis: broker {broker} is back")
