"""
The workloads: each runs one history for a seed and returns the verdict.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.spark.endpoints import KafkaSink, KafkaSource, PlainSource, Row
from tests.simulation.spark.query import Checkpoint, Definition
from tests.simulation.spark.shapes import DIRECT, shapes
from tests.simulation.workloads.batch_reads import BatchReads
from tests.simulation.workloads.batch_writes import batch_write
from tests.simulation.workloads.changing_log import Change, changing_log
from tests.simulation.workloads.fault_kinds import (
    CLUSTER_FAULTS,
    IGNORANCE_FAULTS,
    WRITE_FAULTS,
)
from tests.simulation.workloads.history import FAULT_SECONDS, History
from tests.simulation.workloads.nemesis import Nemesis
from tests.simulation.workloads.options import (
    draw_batch_change,
    draw_ignorance,
    draw_lost_commits,
    draw_refusals,
    draw_release,
    draw_timeouts,
    read_options,
    write_options,
)
from tests.simulation.workloads.order import check_order, places_of
from tests.simulation.workloads.progress import progress
from tests.simulation.workloads.source import source
from tests.simulation.workloads.topics import (
    INPUT,
    OUTPUT,
    RECREATION,
    check_producers,
    check_progress,
    fill,
    is_filled,
    is_read,
    is_settled,
    stop,
    truth,
)

from pyspark_pykafka.verify.checker import Verdict, check_sink

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def batch(seed: int, *, is_traced: bool = False) -> tuple[Verdict, History]:
    """
    Batch reads, each in a new process, usually from the earliest to the latest offsets. In some
    histories the topic gets more partitions or is recreated, or the brokers are older.

    A read returns all selected records that were visible at its start, and those of one topic only.
    """
    with History(seed, is_traced=is_traced, release=draw_release(seed)) as history:
        change = Change(history, draw_batch_change(seed))
        history.may_lose = change.kind == RECREATION
        producers = change.producers = fill(history, change.partitions)
        reads = BatchReads(change, history.draw.choice(("read_committed", "read_uncommitted")))
        topics = [(INPUT, change.partitions)]
        faults = IGNORANCE_FAULTS if draw_ignorance(seed) else CLUSTER_FAULTS
        nemesis = Nemesis(history, [], topics, (*faults, "tiered"))
        history.world.call_later(FAULT_SECONDS, lambda: stop(producers))
        history.world.call_later(1.0, reads.start)
        if change.kind:
            change.happen_later()
        history.run(
            nemesis, lambda: reads.is_idle and is_filled(history, producers, change.partitions)
        )
        if history.verdict.is_clean:
            records = truth(history, INPUT, change.partitions)
            reads.check(history.verdict, records)
            if not change.former:
                check_producers(history, producers, records)
        check_progress(history.verdict)
        return history.verdict, history


def exactly_once(seed: int, *, is_traced: bool = False) -> tuple[Verdict, History]:
    """
    A stream from a source other than Kafka into an exactly-once sink.
    """
    return _sink(seed, "exactly-once", is_traced=is_traced)


def at_least_once(seed: int, *, is_traced: bool = False) -> tuple[Verdict, History]:
    """
    The same stream into an at-least-once sink.
    """
    return _sink(seed, "at-least-once", is_traced=is_traced)


def chained(seed: int, *, is_traced: bool = False) -> tuple[Verdict, History]:
    """
    From Kafka to Kafka, exactly once, with tiny micro-batches that the driver reads.
    """
    with History(seed, is_traced=is_traced) as history:
        partitions, output_partitions = history.draw.choice((1, 3)), history.draw.choice((1, 4))
        producers = fill(history, partitions)
        history.cluster.create_topic(OUTPUT, output_partitions)
        options = read_options(history, "read_committed")
        sink_options = write_options(history, "exactly-once")
        definition = Definition(
            lambda: KafkaSource(history.connector, options),
            lambda: KafkaSink(history.connector, sink_options),
            shape=history.draw.choice(shapes()),
            other_rows=history.draw.choice((None, None, _other_rows)),
            speculation=history.draw.choice((0.0, 0.0, 0.05)),
            has_executors=history.draw.random() < 0.5,
        )
        supervisor = history.supervise(definition)
        topics = [(INPUT, partitions), (OUTPUT, output_partitions)]
        faults = (*WRITE_FAULTS, "tiered")
        nemesis = Nemesis(history, [supervisor], topics, faults, 0.02)
        history.world.call_later(FAULT_SECONDS, lambda: stop(producers))
        history.run(
            nemesis,
            lambda: (
                is_read(history, supervisor, producers, partitions)
                and is_settled(history, OUTPUT, output_partitions)
            ),
        )
        if history.verdict.is_clean:
            rows = truth(history, INPUT, partitions)
            expected = [
                r.value for partition in rows.values() for r in partition if r.state == "committed"
            ]
            expected += _other_values(definition, supervisor.checkpoint)
            records = truth(history, OUTPUT, output_partitions)
            check_sink(history.verdict, expected, records, exactly_once=True, has_retried=True)
        check_progress(history.verdict)
        return history.verdict, history


def _sink(seed: int, guarantee: str, *, is_traced: bool) -> tuple[Verdict, History]:
    with History(seed, is_traced=is_traced) as history:
        output_partitions = history.draw.choice((1, 3, 5))
        history.cluster.create_topic(OUTPUT, output_partitions)
        plain = PlainSource(
            max_rows=history.draw.choice((10, 40, 200)), splits=history.draw.choice((1, 3, 5))
        )
        _append_rows(history, plain)
        options = write_options(history, guarantee)
        shape = history.draw.choice(shapes())
        if draw_refusals(seed):
            # Only this shape keeps an order that can be checked.
            shape, options["kafka.batch.size"] = DIRECT, "100"
            history.cluster.refuse_writes(OUTPUT, 0.1)
        supervisor = history.supervise(
            Definition(
                lambda: plain,
                lambda: KafkaSink(history.connector, options),
                shape=shape,
                speculation=history.draw.choice((0.0, 0.0, 0.05)),
                has_executors=history.draw.random() < 0.5,
            )
        )
        strikes = history.draw.choice((0.0, 0.03))
        nemesis = Nemesis(
            history, [supervisor], [(OUTPUT, output_partitions)], WRITE_FAULTS, strikes
        )
        if draw_timeouts(seed):
            nemesis.timeout_chance = 0.2
        if draw_lost_commits(seed):
            nemesis.strike_chance, nemesis.cut_off_chance = 0.03, 0.8
            nemesis.loses_requests = True
            # Shorter than most times for which the driver is cut off.
            options["kafka.max.block.ms"] = "8000"
        history.run(
            nemesis,
            lambda: (
                supervisor.checkpoint.last_end == len(plain.rows)
                and is_settled(history, OUTPUT, output_partitions)
            ),
        )
        if history.verdict.is_clean:
            records = truth(history, OUTPUT, output_partitions)
            check_sink(
                history.verdict,
                [row.value for row in plain.rows],
                records,
                exactly_once=guarantee == "exactly-once",
                has_retried=nemesis.count > 0 or supervisor.runs > 1,
            )
            if shape is DIRECT and history.verdict.is_clean:
                check_order(history.verdict, records, places_of(plain, supervisor.checkpoint))
        check_progress(history.verdict)
        return history.verdict, history


WORKLOADS: Mapping[str, Callable[..., tuple[Verdict, History]]] = {
    "batch": batch,
    "batch-write": batch_write,
    "source": source,
    "at-least-once": at_least_once,
    "exactly-once": exactly_once,
    "chained": chained,
    "changing-log": changing_log,
    "progress": progress,
}


# --- Input ----------------------------------------------------------------------------------------


def _append_rows(history: History, plain: PlainSource) -> None:
    """
    Let rows arrive until the faults end.
    """

    def append() -> None:
        for _ in range(history.draw.choice((1, 5, 30))):
            number = len(plain.rows)
            plain.rows.append(Row(f"row:{number}".encode(), f"k{number % 7}".encode()))
        if history.world.elapsed < FAULT_SECONDS:
            history.world.call_later(history.draw.expovariate(1.0), append)

    append()


def _other_rows(start: Any, end: Any) -> list[list[Row]]:
    """
    Return rows of another input of the same micro-batch: the same at each replay.
    """
    return [[Row(f"other:{start}:{end}:{number}".encode()) for number in range(2)]]


def _other_values(definition: Definition, checkpoint: Checkpoint) -> list[bytes]:
    if definition.other_rows is None:
        return []
    rows: list[bytes] = []
    for batch in checkpoint.completed:
        start = checkpoint.ends.get(batch - 1, checkpoint.initial)
        for batch_rows in definition.other_rows(start, checkpoint.ends[batch]):
            rows += [row.value for row in batch_rows]
    return rows
