"""
Measures how fast rows are written, with all writers in every round, each into a new topic.
"""

from __future__ import annotations

import math
import sys
import time
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import count
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 (how Spark's users know it)

from bench.cases import (
    EXACTLY_ONCE,
    JVM,
    JVM_TUNED,
    JVM_TUNED_LZ4,
    WIRE,
    Case,
    Contender,
    TopicSpec,
    shuffled_rounds,
)
from bench.figures import IncompleteError, check_records
from bench.load import TOPIC
from bench.measurement import Measurement, Series
from bench.processes import Cpu, end_workers, worker_peak
from bench.reads import checksum_of
from bench.server import delete_topic, records_in
from bench.session import collect_garbage, jvm_pid
from bench.values import keys, samples

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from pyspark_pykafka.testing import KafkaCluster

COLUMNS = ("key", "value")
CHECKED_RECORDS = 20_000

_topic_numbers = count()


class WrongWriteError(RuntimeError):
    """
    The records in the topic differ from the rows that were written.
    """


@dataclass(frozen=True, slots=True)
class WriteBench:
    """
    The environment and the contenders of a write benchmark.

    With ``verifies``, the content is checked and the memory measured before the rounds; records are
    always counted.
    After ``deadline`` (``time.monotonic``) no further round starts, except the first of a case.
    """

    spark: SparkSession
    kafka: KafkaCluster
    writers: Sequence[Contender]
    rounds: int
    verifies: bool = True
    deadline: float = math.inf

    def measure(self, spec: TopicSpec) -> Measurement:
        """
        Verify and warm up all writers, then time the rounds.
        """
        case, frame = Case("write", spec), rows(self.spark, spec)
        peaks = {writer.name: self.verify(writer, frame, spec) for writer in self.writers}
        seconds: defaultdict[str, list[float]] = defaultdict(list)
        cpu_seconds: defaultdict[str, list[float]] = defaultdict(list)
        writers_by_name = {writer.name: writer for writer in self.writers}
        for completed, order in enumerate(
            shuffled_rounds(list(writers_by_name), self.rounds, seed=case.name)
        ):
            if completed and time.monotonic() > self.deadline:
                print(
                    f"  {case.name} ran {completed} of {self.rounds} rounds: out of time",
                    file=sys.stderr,
                )
                break
            for name in order:
                with self.topic(spec) as topic:
                    collect_garbage(self.spark)
                    with Cpu(jvm_pid(self.spark)) as cpu:
                        seconds[name].append(self.write(writers_by_name[name], frame, spec, topic))
                    cpu_seconds[name].append(cpu.seconds)
                    self.check(writers_by_name[name], spec, topic)
        series = {
            name: Series(tuple(seconds[name]), tuple(cpu_seconds[name]), peaks[name])
            for name in writers_by_name
        }
        also = tuple(
            writer.name
            for writer in (JVM_TUNED, JVM_TUNED_LZ4, WIRE)
            if writer.name in writers_by_name
        )
        return Measurement(case.name, case.mode, series, spec.records, asdict(spec), also=also)

    def verify(self, writer: Contender, frame: DataFrame, spec: TopicSpec) -> int | None:
        """
        Write in new workers, and return their peak memory in bytes.

        Raises :class:`WrongWriteError` if the topic does not have the keys and values of the rows.
        """
        pid = jvm_pid(self.spark)
        if self.verifies:
            end_workers(pid)
        with self.topic(spec) as topic:
            self.write(writer, frame, spec, topic)
            peak = worker_peak(pid) if self.verifies else None
            self.check(writer, spec, topic)
            if self.verifies and writes_to_kafka(writer):
                source = {"kafka.bootstrap.servers": self.kafka.bootstrap, "subscribe": topic}
                written = self.spark.read.format(JVM.format).options(**source).load()
                if checksum_of(written, COLUMNS) != checksum_of(frame, COLUMNS):
                    msg = f"the records in {topic} differ from the rows that {writer.name} got"
                    raise WrongWriteError(msg)
        return peak

    def write(self, writer: Contender, frame: DataFrame, spec: TopicSpec, topic: str) -> float:
        """
        Write once and return the time in seconds.
        """
        options = {"records": str(spec.records)}
        if writes_to_kafka(writer):
            options = {"kafka.bootstrap.servers": self.kafka.bootstrap, "topic": topic}
        start = time.perf_counter()
        write = frame.write.format(writer.format).options(**options, **writer.options)
        write.mode("append").save()
        return time.perf_counter() - start

    def check(self, writer: Contender, spec: TopicSpec, topic: str) -> None:
        """
        Raise :class:`IncompleteError` if records are missing or duplicate.
        """
        if writes_to_kafka(writer):
            count = self.count(writer, topic)
            check_records(f"{writer.name}, writing to {topic},", spec.records, count)

    def count(self, writer: Contender, topic: str) -> int:
        """
        Return the number of records; transaction markers have offsets, but are not records.
        """
        if writer.name != EXACTLY_ONCE.name:
            return records_in(self.kafka, topic)
        source = {"kafka.bootstrap.servers": self.kafka.bootstrap, "subscribe": topic}
        committed = {**source, "kafka.isolation.level": "read_committed"}
        return self.spark.read.format(JVM.format).options(**committed).load().count()

    @contextmanager
    def topic(self, spec: TopicSpec) -> Iterator[str]:
        """
        Yield the name of a new topic, unknown to all clients, and delete it at the end.
        """
        name = f"{spec.name}-written-{next(_topic_numbers)}"
        self.kafka.create_topic(name, spec.partitions, TOPIC)
        try:
            yield name
        finally:
            delete_topic(self.kafka, name)


def writes_to_kafka(writer: Contender) -> bool:
    """
    Return whether the contender writes to a topic.
    """
    return writer.format in {"kafka", "pykafka"}


def measure_writes(bench: WriteBench, specs: Sequence[TopicSpec]) -> Iterator[Measurement]:
    """
    Measure each kind of topic, after checking that incomplete writes are rejected.
    """
    check_incomplete_is_rejected(bench)
    for spec in specs:
        yield bench.measure(spec)


def rows(spark: SparkSession, spec: TopicSpec) -> DataFrame:
    """
    Return the rows to be written: keys and values from two arrays, at almost no cost.
    """
    return spark.range(0, spec.records, 1, spark.sparkContext.defaultParallelism).select(
        _picked(keys()).alias("key"), _picked(samples(spec.size)).alias("value")
    )


def _picked(values: Sequence[bytes]) -> Column:
    literals = ",".join(f"X'{value.hex()}'" for value in values)
    return F.expr(f"array({literals})[CAST(id % {len(values)} AS INT)]")


def check_incomplete_is_rejected(bench: WriteBench) -> None:
    """
    Check that a write with one missing record is rejected, so that no such write is ever timed.
    """
    complete = TopicSpec(100, "none", 2, CHECKED_RECORDS)
    short = rows(bench.spark, TopicSpec(100, "none", 2, CHECKED_RECORDS - 1))
    with bench.topic(complete) as topic:
        try:
            bench.write(JVM, short, complete, topic)
            bench.check(JVM, complete, topic)
        except IncompleteError as error:
            if error.actual == CHECKED_RECORDS - 1:
                return
            raise
    msg = "a write with a missing record was accepted; the benchmark cannot be trusted"
    raise WrongWriteError(msg)
