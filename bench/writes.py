"""
Measures how fast rows are written: every writer in every round, each into a topic of its own.
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
from bench.figures import ShortReadError, check_records
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
PLANTED = 20_000

_topic_numbers = count()


class WrongWriteError(RuntimeError):
    """
    A writer left as many records as it was given, but other ones.
    """


@dataclass(frozen=True, slots=True)
class WriteBench:
    """
    Where rows are written to, by whom, and how often.

    ``inspects`` says whether content and memory are looked at before the rounds; records are
    counted in any case. After ``latest``, on the clock ``time.monotonic``, no further round begins,
    but each case has one.
    """

    spark: SparkSession
    kafka: KafkaCluster
    writers: Sequence[Contender]
    rounds: int
    inspects: bool = True
    latest: float = math.inf

    def measure(self, spec: TopicSpec) -> Measurement:
        """
        Look at every writer or warm it up, then time the rounds.
        """
        case, frame = Case("write", spec), rows(self.spark, spec)
        peaks = {one.name: self.inspect(one, frame, spec) for one in self.writers}
        seconds: defaultdict[str, list[float]] = defaultdict(list)
        cpu_seconds: defaultdict[str, list[float]] = defaultdict(list)
        named = {one.name: one for one in self.writers}
        for done, order in enumerate(shuffled_rounds(list(named), self.rounds, seed=case.name)):
            if done and time.monotonic() > self.latest:
                print(f"  {case.name} has {done} of {self.rounds} rounds: no time", file=sys.stderr)
                break
            for name in order:
                with self.topic(spec) as topic:
                    collect_garbage(self.spark)
                    with Cpu(jvm_pid(self.spark)) as cpu:
                        seconds[name].append(self.write(named[name], frame, spec, topic))
                    cpu_seconds[name].append(cpu.seconds)
                    self.check(named[name], spec, topic)
        series = {
            name: Series(tuple(seconds[name]), tuple(cpu_seconds[name]), peaks[name])
            for name in named
        }
        also = tuple(one.name for one in (JVM_TUNED, JVM_TUNED_LZ4, WIRE) if one.name in named)
        return Measurement(case.name, case.mode, series, spec.records, asdict(spec), also=also)

    def inspect(self, writer: Contender, frame: DataFrame, spec: TopicSpec) -> int | None:
        """
        Let a writer write in workers of its own, and return their peak of memory in bytes.

        Refuses a writer whose topic does not hold the keys and values that it was given.
        """
        pid = jvm_pid(self.spark)
        if self.inspects:
            end_workers(pid)
        with self.topic(spec) as topic:
            self.write(writer, frame, spec, topic)
            peak = worker_peak(pid) if self.inspects else None
            self.check(writer, spec, topic)
            if self.inspects and in_kafka(writer):
                where = {"kafka.bootstrap.servers": self.kafka.bootstrap, "subscribe": topic}
                found = self.spark.read.format(JVM.format).options(**where).load()
                if checksum_of(found, COLUMNS) != checksum_of(frame, COLUMNS):
                    msg = f"{writer.name} wrote other records to {topic} than it was given"
                    raise WrongWriteError(msg)
        return peak

    def write(self, writer: Contender, frame: DataFrame, spec: TopicSpec, topic: str) -> float:
        """
        Write once, and return the seconds.
        """
        options = {"records": str(spec.records)}
        if in_kafka(writer):
            options = {"kafka.bootstrap.servers": self.kafka.bootstrap, "topic": topic}
        began = time.perf_counter()
        write = frame.write.format(writer.format).options(**options, **writer.options)
        write.mode("append").save()
        return time.perf_counter() - began

    def check(self, writer: Contender, spec: TopicSpec, topic: str) -> None:
        """
        Refuse a write that left records out or doubled them.
        """
        if in_kafka(writer):
            found = self.count(writer, topic)
            check_records(f"{writer.name}, writing to {topic},", spec.records, found)

    def count(self, writer: Contender, topic: str) -> int:
        """
        Return how many records there are; the ends of transactions have offsets and are none.
        """
        if writer.name != EXACTLY_ONCE.name:
            return records_in(self.kafka, topic)
        where = {"kafka.bootstrap.servers": self.kafka.bootstrap, "subscribe": topic}
        committed = {**where, "kafka.isolation.level": "read_committed"}
        return self.spark.read.format(JVM.format).options(**committed).load().count()

    @contextmanager
    def topic(self, spec: TopicSpec) -> Iterator[str]:
        """
        Give the name of an empty topic that no client has heard of, and remove it at the end.
        """
        name = f"{spec.name}-written-{next(_topic_numbers)}"
        self.kafka.create_topic(name, spec.partitions, TOPIC)
        try:
            yield name
        finally:
            delete_topic(self.kafka, name)


def in_kafka(writer: Contender) -> bool:
    """
    Tell whether what it writes lies in a topic afterwards.
    """
    return writer.format in {"kafka", "pykafka"}


def measure_writes(bench: WriteBench, specs: Sequence[TopicSpec]) -> Iterator[Measurement]:
    """
    Measure each kind of topic, once it is proven that a short write would be refused.
    """
    prove_refusal(bench)
    for spec in specs:
        yield bench.measure(spec)


def rows(spark: SparkSession, spec: TopicSpec) -> DataFrame:
    """
    Return the rows to write: keys and values picked from two arrays, which costs next to nothing.
    """
    return spark.range(0, spec.records, 1, spark.sparkContext.defaultParallelism).select(
        _picked(keys()).alias("key"), _picked(samples(spec.size)).alias("value")
    )


def _picked(values: Sequence[bytes]) -> Column:
    literals = ",".join(f"X'{one.hex()}'" for one in values)
    return F.expr(f"array({literals})[CAST(id % {len(values)} AS INT)]")


def prove_refusal(bench: WriteBench) -> None:
    """
    Plant a writer that leaves one record out: a bench that times it may not measure anything.
    """
    planted = TopicSpec(100, "none", 2, PLANTED)
    short = rows(bench.spark, TopicSpec(100, "none", 2, PLANTED - 1))
    with bench.topic(planted) as topic:
        try:
            bench.write(JVM, short, planted, topic)
            bench.check(JVM, planted, topic)
        except ShortReadError as refusal:
            if refusal.found == PLANTED - 1:
                return
            raise
    msg = "A write that left a record out was counted as whole; nothing can be measured"
    raise WrongWriteError(msg)
