"""
A stream from Kafka that records its progress in a store.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING
from unittest.mock import patch

from tests.simulation.spark.endpoints import Collector, KafkaSource
from tests.simulation.spark.query import Definition
from tests.simulation.workloads.fault_kinds import READ_FAULTS
from tests.simulation.workloads.history import FAULT_SECONDS, History
from tests.simulation.workloads.nemesis import Nemesis
from tests.simulation.workloads.options import read_options
from tests.simulation.workloads.progress_store import ProgressServer
from tests.simulation.workloads.topics import INPUT, check_progress, fill, is_read, stop, truth

from pyspark_pykafka.verify.checker import Verdict, check_source

if TYPE_CHECKING:
    from tests.simulation.workloads.history import Supervisor


#: The share of histories in which drivers die in the middle of a write to the store, and the write
#: arrives late.
_LATE_WRITES = 0.25


def progress(seed: int, *, is_traced: bool = False) -> tuple[Verdict, History]:
    """
    The records of the store never move back, are never ahead of the query, and reach the end.
    """
    with History(seed, is_traced=is_traced) as history:
        server = ProgressServer(history.connector, history.verdict)
        factory = history.connector.module("progress.factory")
        with patch.object(factory, "make_progress_store", lambda _: server.connect()):
            _run(history, server)
        return history.verdict, history


def _run(history: History, server: ProgressServer) -> None:
    partitions = history.draw.choice((1, 3))
    producers = fill(history, partitions)
    sink = Collector()
    options = {
        **read_options(history, "read_committed"),
        "progressStore": "consumerGroup",
        "kafka.group.id": "progress",
    }
    supervisor = history.supervise(
        Definition(
            lambda: KafkaSource(history.connector, options),
            lambda: sink,
            has_executors=history.draw.random() < 0.5,
        )
    )
    server.completed = lambda: _completed(supervisor)
    faults = {"store fails": server.fail, "store is slow": server.slow_down}
    if Random(f"late writes {history.seed}").random() < _LATE_WRITES:
        faults["writer dies"] = lambda: server.kill_next_writer(nemesis.kill_driver)
    nemesis: Nemesis = Nemesis(
        history, [supervisor], [(INPUT, partitions)], READ_FAULTS, 0.02, extra_faults={**faults}
    )
    history.world.call_later(FAULT_SECONDS, lambda: stop(producers))
    history.world.call_later(FAULT_SECONDS, server.end_faults)
    history.run(
        nemesis,
        lambda: (
            is_read(history, supervisor, producers, partitions)
            and not server.late_writes
            and server.offsets() == _ends(history, partitions)
        ),
    )
    if history.verdict.is_clean:
        batches = [sink.batches[number] for number in sorted(supervisor.checkpoint.completed)]
        records = truth(history, INPUT, partitions)
        check_source(history.verdict, records, batches)
    check_progress(history.verdict)


def _completed(supervisor: Supervisor) -> dict[tuple[str, int], int]:
    """
    Return the end of the last completed micro-batch; before the first one, the query's start.
    """
    checkpoint = supervisor.checkpoint
    end = checkpoint.last_end or checkpoint.initial or {}
    return {(INPUT, int(number)): offset for number, offset in end.get(INPUT, {}).items()}


def _ends(history: History, partitions: int) -> dict[tuple[str, int], int]:
    return {(INPUT, number): history.cluster.log_end(INPUT, number) for number in range(partitions)}
