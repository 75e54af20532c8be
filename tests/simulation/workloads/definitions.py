"""
The workloads: each runs one history for a seed and returns the verdict.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.spark.checker import Verdict, check_rows, check_sink, check_source
from tests.simulation.spark.endpoints import (
    Collector,
    KafkaSink,
    KafkaSource,
    PlainSource,
    Row,
    rows_of,
)
from tests.simulation.spark.query import Definition
from tests.simulation.spark.shapes import shapes
from tests.simulation.workloads.history import FAULT_SECONDS, History, Supervisor
from tests.simulation.workloads.nemesis import Nemesis
from tests.simulation.workloads.producers import PlainProducer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.simulation.kernel.world import Task

_CLUSTER_FAULTS = (
    "crash",
    "pause broker",
    "isolate",
    "move leader",
    "late leader",
    "lag",
    "cut",
    "drop responses",
    "refuse",
    "slow",
    "reset",
    "throttle",
)
_PROCESS_FAULTS = (
    "kill worker",
    "pause worker",
    "kill driver",
    "pause driver",
    "replace driver",
)
_READ_FAULTS = (*_CLUSTER_FAULTS, *_PROCESS_FAULTS, "tiered")
_WRITE_FAULTS = (*_CLUSTER_FAULTS, *_PROCESS_FAULTS, "move coordinator")

INPUT, OUTPUT = "input", "output"
# A producer tries its last requests again for some time.
_LAST_WRITE_SECONDS = 30.0


def source(seed: int, *, is_traced: bool = False) -> tuple[Verdict, History]:
    """
    A stream from Kafka into a sink that keeps each micro-batch once.
    """
    with History(seed, is_traced=is_traced) as history:
        partitions = history.draw.choice((1, 3, 6))
        producers = _fill(history, partitions)
        sink = Collector()
        isolation = history.draw.choice(("read_committed", "read_uncommitted"))
        options = _read_options(history, isolation)
        supervisor = history.supervise(
            Definition(
                lambda: KafkaSource(history.connector, options),
                lambda: sink,
                shape=history.draw.choice(shapes()),
                speculation=history.draw.choice((0.0, 0.05)),
                has_executors=history.draw.random() < 0.5,
            )
        )
        nemesis = Nemesis(history, [supervisor], [(INPUT, partitions)], _READ_FAULTS, 0.01)
        history.world.call_later(FAULT_SECONDS, lambda: _stop(producers))
        history.run(nemesis, lambda: _is_read(history, supervisor, partitions))
        batches = [sink.batches[number] for number in sorted(supervisor.checkpoint.completed)]
        if history.verdict.is_clean:
            truth = _truth(history, INPUT, partitions)
            committed_only = isolation == "read_committed"
            check_source(history.verdict, truth, batches, committed_only=committed_only)
            _check_producers(history, producers, truth)
        _check_progress(history.verdict)
        return history.verdict, history


def batch(seed: int, *, is_traced: bool = False) -> tuple[Verdict, History]:
    """
    Batch reads from the earliest to the latest offsets, each a process that knows nothing yet.

    A read has all records that were visible when it began.
    """
    with History(seed, is_traced=is_traced) as history:
        partitions = history.draw.choice((1, 3))
        producers = _fill(history, partitions)
        reads = BatchReads(
            history, partitions, history.draw.choice(("read_committed", "read_uncommitted"))
        )
        nemesis = Nemesis(history, [], [(INPUT, partitions)], (*_CLUSTER_FAULTS, "tiered"))
        history.world.call_later(FAULT_SECONDS, lambda: _stop(producers))
        history.world.call_later(1.0, reads.start)
        history.run(nemesis, lambda: reads.is_idle and _is_filled(history, partitions))
        if history.verdict.is_clean:
            truth = _truth(history, INPUT, partitions)
            reads.check(history.verdict, truth)
            _check_producers(history, producers, truth)
        _check_progress(history.verdict)
        return history.verdict, history


def exactly_once(seed: int, *, is_traced: bool = False) -> tuple[Verdict, History]:
    """
    A stream from a source that is not ours into an exactly-once sink.
    """
    return _sink(seed, "exactly-once", is_traced=is_traced)


def at_least_once(seed: int, *, is_traced: bool = False) -> tuple[Verdict, History]:
    """
    The same into an at-least-once sink.
    """
    return _sink(seed, "at-least-once", is_traced=is_traced)


def chained(seed: int, *, is_traced: bool = False) -> tuple[Verdict, History]:
    """
    From Kafka to Kafka, exactly once, with tiny micro-batches that the driver reads.
    """
    with History(seed, is_traced=is_traced) as history:
        partitions, written = history.draw.choice((1, 3)), history.draw.choice((1, 4))
        producers = _fill(history, partitions)
        history.cluster.create_topic(OUTPUT, written)
        options = _read_options(history, "read_committed")
        write_options = _write_options(history, "exactly-once")
        supervisor = history.supervise(
            Definition(
                lambda: KafkaSource(history.connector, options),
                lambda: KafkaSink(history.connector, write_options),
                shape=history.draw.choice(shapes()),
                other_rows=history.draw.choice((None, None, _other_rows)),
                speculation=history.draw.choice((0.0, 0.0, 0.05)),
                has_executors=history.draw.random() < 0.5,
            )
        )
        topics = [(INPUT, partitions), (OUTPUT, written)]
        faults = (*_WRITE_FAULTS, "tiered")
        nemesis = Nemesis(history, [supervisor], topics, faults, 0.02)
        history.world.call_later(FAULT_SECONDS, lambda: _stop(producers))
        history.run(
            nemesis,
            lambda: (
                _is_read(history, supervisor, partitions) and _is_settled(history, OUTPUT, written)
            ),
        )
        if history.verdict.is_clean:
            rows = _truth(history, INPUT, partitions)
            expected = [r.value for found in rows.values() for r in found if r.state == "committed"]
            if supervisor.query is not None:
                expected += _others_of(supervisor)
            truth = _truth(history, OUTPUT, written)
            check_sink(history.verdict, expected, truth, exactly_once=True, has_retried=True)
        _check_progress(history.verdict)
        return history.verdict, history


def _sink(seed: int, guarantee: str, *, is_traced: bool) -> tuple[Verdict, History]:
    with History(seed, is_traced=is_traced) as history:
        written = history.draw.choice((1, 3, 5))
        history.cluster.create_topic(OUTPUT, written)
        plain = PlainSource(
            max_rows=history.draw.choice((10, 40)), splits=history.draw.choice((1, 3, 5))
        )
        _append_rows(history, plain)
        options = _write_options(history, guarantee)
        supervisor = history.supervise(
            Definition(
                lambda: plain,
                lambda: KafkaSink(history.connector, options),
                shape=history.draw.choice(shapes()),
                speculation=history.draw.choice((0.0, 0.0, 0.05)),
                has_executors=history.draw.random() < 0.5,
            )
        )
        strikes = history.draw.choice((0.0, 0.03))
        nemesis = Nemesis(history, [supervisor], [(OUTPUT, written)], _WRITE_FAULTS, strikes)
        history.run(
            nemesis,
            lambda: (
                supervisor.checkpoint.ends.get(max(supervisor.checkpoint.completed, default=-1))
                == len(plain.rows)
                and _is_settled(history, OUTPUT, written)
            ),
        )
        if history.verdict.is_clean:
            check_sink(
                history.verdict,
                [row.value for row in plain.rows],
                _truth(history, OUTPUT, written),
                exactly_once=guarantee == "exactly-once",
                has_retried=nemesis.count > 0 or supervisor.runs > 1,
            )
        _check_progress(history.verdict)
        return history.verdict, history


class BatchReads:
    """
    One batch read after another, in new processes.
    """

    def __init__(self, history: History, partitions: int, isolation: str) -> None:
        self._history = history
        self._partitions = partitions
        self._isolation = isolation
        self._results: list[tuple[dict[int, int], list[Row]]] = []
        self._task: Task | None = None

    @property
    def is_idle(self) -> bool:
        """
        Whether no read is under way.
        """
        return self._task is None or self._task.is_done

    def start(self) -> None:
        """
        Begin a read, and the next one after it, until the faults end.
        """
        history = self._history
        if self.is_idle and history.world.elapsed < FAULT_SECONDS:
            visible = {number: self._visible_end(number) for number in range(self._partitions)}
            options = _read_options(history, self._isolation)
            process = history.connector.process("batch")
            self._task = process.spawn("read", lambda: self._read(options, visible))
        if history.world.elapsed < FAULT_SECONDS:
            history.world.call_later(history.draw.expovariate(1.0), self.start)

    def check(self, verdict: Verdict, truth: Mapping[Any, Any]) -> None:
        """
        Compare each read with the logs, up to what had been visible before.
        """
        for visible, rows in self._results:
            committed_only = self._isolation == "read_committed"
            check_rows(verdict, truth, [rows], committed_only=committed_only)
            found = {(row.partition, row.offset) for row in rows}
            verdict.records += len(rows)
            wanted = {"committed"} if committed_only else {"committed", "aborted", "open"}
            verdict.add(
                "lost",
                [
                    (partition, record.offset)
                    for (_, partition), records in truth.items()
                    for record in records
                    if record.offset < visible[partition]
                    and record.state in wanted
                    and (partition, record.offset) not in found
                ],
            )

    def _visible_end(self, partition: int) -> int:
        cluster = self._history.cluster
        if self._isolation == "read_committed":
            return cluster.last_stable_offset(INPUT, partition)
        return cluster.high_watermark(INPUT, partition)

    def _read(self, options: dict[str, str], visible: dict[int, int]) -> None:
        source = self._history.connector.source(options)
        reader = source.reader(source.schema())
        rows = [
            row
            for partition in reader.partitions()
            for some in rows_of(reader.read(partition))
            for row in some
        ]
        self._results.append((visible, rows))


WORKLOADS: Mapping[str, Callable[..., tuple[Verdict, History]]] = {
    "batch": batch,
    "source": source,
    "at-least-once": at_least_once,
    "exactly-once": exactly_once,
    "chained": chained,
}


# --- Input ----------------------------------------------------------------------------------------


def _fill(history: History, partitions: int) -> list[PlainProducer]:
    """
    Create the input topic, and start its producers.
    """
    history.cluster.create_topic(INPUT, partitions)
    process = history.world.process("producers")
    tps = [(INPUT, number) for number in range(partitions)]
    kinds = [history.draw.random() < 0.5 for _ in range(history.draw.randint(1, 3))]
    producers = [
        PlainProducer(history.client, f"p{number}", tps, transactional=transactional)
        for number, transactional in enumerate(kinds)
    ]
    for producer in producers:
        process.spawn("producer", producer.run)
    return producers


def _stop(producers: list[PlainProducer]) -> None:
    for producer in producers:
        producer.is_stopping = True


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


def _others_of(supervisor: Supervisor) -> list[bytes]:
    checkpoint, definition = supervisor.checkpoint, supervisor.definition
    if definition.other_rows is None:
        return []
    rows: list[bytes] = []
    for batch in checkpoint.completed:
        start = checkpoint.ends.get(batch - 1, checkpoint.initial)
        for some in definition.other_rows(start, checkpoint.ends[batch]):
            rows += [row.value for row in some]
    return rows


# --- Options --------------------------------------------------------------------------------------


def _read_options(history: History, isolation: str) -> dict[str, str]:
    draw = history.draw
    options = {
        "kafka.bootstrap.servers": history.bootstrap,
        "subscribe": INPUT,
        "startingOffsets": "earliest",
        "kafka.isolation.level": isolation,
        "kafkaConsumer.pollTimeoutMs": draw.choice(("5000", "30000", "120000")),
        "failOnDataLoss": draw.choice(("true", "false")),
    }
    for name, values in {
        "maxOffsetsPerTrigger": ("20", "200"),
        "minPartitions": ("4", "9"),
        "kafka.request.timeout.ms": ("3000", "30000"),
        "kafka.fetch.max.bytes": ("2000",),
        "kafka.max.partition.fetch.bytes": ("1000",),
    }.items():
        if draw.random() < 0.3:
            options[name] = draw.choice(values)
    return options


def _write_options(history: History, guarantee: str) -> dict[str, str]:
    draw = history.draw
    options = {
        "kafka.bootstrap.servers": history.bootstrap,
        "topic": OUTPUT,
        "deliveryGuarantee": guarantee,
    }
    if guarantee == "exactly-once":
        options["transactionalIdPrefix"] = "sim"
        options["kafka.transaction.timeout.ms"] = draw.choice(("60000", "900000"))
    if draw.random() < 0.3:
        options["kafka.batch.size"] = draw.choice(("200", "1000"))
    if draw.random() < 0.4:
        options["kafka.request.timeout.ms"] = "3000"
        options["kafka.delivery.timeout.ms"] = draw.choice(("8000", "30000"))
        options["kafka.max.block.ms"] = draw.choice(("8000", "20000"))
    return options


# --- The end --------------------------------------------------------------------------------------


def _truth(history: History, topic: str, partitions: int) -> dict[tuple[str, int], Any]:
    cluster = history.cluster
    return {(topic, number): cluster.records(topic, number) for number in range(partitions)}


def _is_settled(history: History, topic: str, partitions: int) -> bool:
    """
    Return whether no transaction is open, and no marker is missing.
    """
    cluster = history.cluster
    return all(
        cluster.last_stable_offset(topic, number) == cluster.log_end(topic, number)
        for number in range(partitions)
    )


def _is_filled(history: History, partitions: int) -> bool:
    """
    Return whether all producers have ended, and their transactions.
    """
    has_ended = history.world.elapsed > FAULT_SECONDS + _LAST_WRITE_SECONDS
    return has_ended and _is_settled(history, INPUT, partitions)


def _is_read(history: History, supervisor: Supervisor, partitions: int) -> bool:
    """
    Return whether the query has completed a micro-batch up to the end of a log that is at rest.
    """
    cluster, checkpoint = history.cluster, supervisor.checkpoint
    if not _is_filled(history, partitions):
        return False
    end = checkpoint.ends.get(max(checkpoint.completed, default=-1), {}).get(INPUT, {})
    return all(
        end.get(str(number)) == cluster.log_end(INPUT, number) for number in range(partitions)
    )


def _check_producers(
    history: History, producers: list[PlainProducer], truth: Mapping[Any, Any]
) -> None:
    """
    Check the simulated cluster itself: it keeps what it has acknowledged.
    """
    kept = {
        record.value for found in truth.values() for record in found if record.state == "committed"
    }
    history.verdict.add(
        "lost by the cluster", [v for p in producers for v in p.acknowledged if v not in kept]
    )


def _check_progress(verdict: Verdict) -> None:
    if verdict.is_clean and not verdict.records:
        verdict.add("void", ["no record was read or written"])
