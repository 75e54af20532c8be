"""
The topics of a history: their producers and contents, and whether they have settled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.workloads.producers import PlainProducer

from pyspark_pykafka.verify.checker import MARKER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.simulation.workloads.history import History, Supervisor

    from pyspark_pykafka.verify.checker import Verdict

INPUT, OUTPUT = "input", "output"
#: Changes of a topic that histories of several workloads have.
PARTITIONS, RECREATION = "partitions", "recreation"


def fill(history: History, partitions: int) -> list[PlainProducer]:
    """
    Create the input topic, and start its producers.
    """
    history.cluster.create_topic(INPUT, partitions)
    process = history.world.process("producers")
    tps = [(INPUT, number) for number in range(partitions)]
    are_transactional = [history.draw.random() < 0.5 for _ in range(history.draw.randint(1, 3))]
    producers = [
        PlainProducer(
            *(history.client, f"p{number}", tps),
            transactional=transactional,
            version=min(history.draw.choice((1, 2)), history.release.transactions),
        )
        for number, transactional in enumerate(are_transactional)
    ]
    for producer in producers:
        producer.task = process.spawn("producer", producer.run)
    return producers


def stop(producers: list[PlainProducer]) -> None:
    """
    Let each producer end after its current batch, or die with an open transaction.
    """
    for producer in producers:
        producer.is_stopping = True


def truth(history: History, topic: str, partitions: int) -> dict[tuple[str, int], Any]:
    """
    Return the records in the logs of a topic, by partition.
    """
    cluster = history.cluster
    return {(topic, number): cluster.records(topic, number) for number in range(partitions)}


def first_at(records: Mapping[Any, Sequence[Any]], timestamp_ms: int) -> dict[int, int]:
    """
    Return the offset of each partition's first record with this timestamp or a later one.
    """
    found: dict[int, int] = {}
    for (_, number), log in records.items():
        for record in log:
            if record.state != MARKER and record.timestamp >= timestamp_ms:
                found[number] = record.offset
                break
    return found


def is_settled(history: History, topic: str, partitions: int) -> bool:
    """
    Return whether no transaction is open, and no marker is missing.
    """
    cluster = history.cluster
    return cluster.has_topic(topic) and all(
        cluster.last_stable_offset(topic, number) == cluster.log_end(topic, number)
        for number in range(partitions)
    )


def is_filled(history: History, producers: list[PlainProducer], partitions: int) -> bool:
    """
    Return whether all producers of the input topic have ended, and all transactions in it.
    """
    return have_ended(producers) and is_settled(history, INPUT, partitions)


def have_ended(producers: list[PlainProducer]) -> bool:
    """
    Return whether all producers have ended.
    """
    return all(producer.task is not None and producer.task.is_done for producer in producers)


def is_read(
    history: History, supervisor: Supervisor, producers: list[PlainProducer], partitions: int
) -> bool:
    """
    Return whether nothing is appended any more, and the query has completed a micro-batch up to the
    end of each log.
    """
    cluster, checkpoint = history.cluster, supervisor.checkpoint
    if not is_filled(history, producers, partitions):
        return False
    end = (checkpoint.last_end or {}).get(INPUT, {})
    return all(
        end.get(str(number)) == cluster.log_end(INPUT, number) for number in range(partitions)
    )


def check_producers(
    history: History, producers: list[PlainProducer], truth: Mapping[Any, Any]
) -> None:
    """
    Check the simulated cluster itself: it keeps all acknowledged records.
    """
    present = {
        record.value
        for records in truth.values()
        for record in records
        if record.state == "committed"
    }
    history.verdict.add(
        "lost by the cluster", [v for p in producers for v in p.acknowledged if v not in present]
    )


def check_progress(verdict: Verdict) -> None:
    """
    Add an anomaly if the history is clean only because no record was read or written.
    """
    if verdict.is_clean and not verdict.records:
        verdict.add("void", ["no record was read or written"])
