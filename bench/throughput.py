"""
Measures how fast topics are read, with all contenders in every round, in shuffled order.
"""

from __future__ import annotations

import math
import sys
import time
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from bench.cases import (
    CEILING,
    FETCH_ONLY,
    JVM,
    READERS,
    Case,
    Contender,
    TopicSpec,
    shuffled_rounds,
)
from bench.figures import IncompleteError, check_records
from bench.load import loaded_topic
from bench.measurement import Measurement, Series
from bench.processes import Cpu, end_workers, worker_peak
from bench.reads import Read, checksum, options_for, read
from bench.session import collect_garbage, jvm_pid

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

    from pyspark_pykafka.testing import KafkaCluster

CHECKED_RECORDS = 20_000


class WrongReadError(RuntimeError):
    """
    A contender's records differ from those of the JVM connector.
    """


@dataclass(slots=True)
class _Rounds:
    """
    The rounds of one contender so far.
    """

    reads: list[Read] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)

    def series(self, peak: int | None) -> Series:
        seconds = tuple(read.seconds for read in self.reads)
        return Series(seconds, tuple(self.cpu_seconds), peak)

    def triggers(self) -> Series:
        seconds = [result.trigger_seconds for result in self.reads]
        return Series(tuple(value for value in seconds if value is not None))


@dataclass(frozen=True, slots=True)
class Bench:
    """
    The environment and the contenders of a read benchmark.

    With ``verifies``, the content is checked and the memory measured before the rounds; records are
    always counted.
    After ``deadline`` (``time.monotonic``) no further round starts, except the first of a case.
    """

    spark: SparkSession
    bootstrap: str
    contenders: Sequence[Contender]
    rounds: int
    verifies: bool = True
    deadline: float = math.inf

    def measure(self, case: Case) -> Iterator[Measurement]:
        """
        Verify and warm up all contenders, then time the rounds; streams have two measurements.
        """
        peaks = self.verify(case) if self.verifies else {}
        rounds: defaultdict[str, _Rounds] = defaultdict(_Rounds)
        names = [contender.name for contender in self.contenders]
        for contender in self.contenders:
            self.read_whole(contender, case)
        for completed, order in enumerate(shuffled_rounds(names, self.rounds, seed=case.name)):
            if completed and time.monotonic() > self.deadline:
                print(
                    f"  {case.name} ran {completed} of {self.rounds} rounds: out of time",
                    file=sys.stderr,
                )
                break
            for name in order:
                self._run(READERS[name], case, rounds[name])
        facts, records = asdict(case.topic), case.topic.records
        series = {name: rounds[name].series(peaks.get(name)) for name in names}
        also = (FETCH_ONLY.name,) if FETCH_ONLY in self.contenders else ()
        yield Measurement(case.name, case.mode, series, records, facts, also=also)
        if case.mode == "stream":
            triggers = {name: rounds[name].triggers() for name in names}
            yield Measurement(f"{case.name}-trigger", "trigger", triggers, records, facts)

    def read_whole(self, contender: Contender, case: Case) -> Read:
        """
        Read once; raise :class:`IncompleteError` if records are missing or duplicate.
        """
        options = options_for(contender, case, self.bootstrap)
        result = read(self.spark, case.mode, contender.format, options)
        check_records(f"{contender.name} in {case.name}", case.topic.records, result.records)
        return result

    def verify(self, case: Case) -> dict[str, int | None]:
        """
        Read with each contender in new workers, and return their peak memory in bytes.

        Raises :class:`WrongReadError` if a batch differs from the JVM connector's in any column.
        """
        peaks: dict[str, int | None] = {}
        pid = jvm_pid(self.spark)
        expected = self._checksum(JVM, case) if case.mode == "batch" else None
        for contender in self.contenders:
            if contender is JVM:
                continue
            end_workers(pid)
            if contender.has_other_records or expected is None:
                self.read_whole(contender, case)
            else:
                self._compare(contender, case, expected)
            peaks[contender.name] = worker_peak(pid)
        return peaks

    def _compare(self, contender: Contender, case: Case, expected: tuple[int, int]) -> None:
        actual = self._checksum(contender, case)
        if actual != expected:
            msg = (
                f"{contender.name} and the JVM connector read different records of "
                f"{case.topic.name}"
            )
            raise WrongReadError(msg)

    def _checksum(self, contender: Contender, case: Case) -> tuple[int, int]:
        options = options_for(contender, case, self.bootstrap)
        actual = checksum(self.spark, contender.format, options)
        check_records(f"{contender.name} in {case.name}", case.topic.records, actual[0])
        return actual

    def _run(self, contender: Contender, case: Case, rounds: _Rounds) -> None:
        collect_garbage(self.spark)
        with Cpu(jvm_pid(self.spark)) as cpu:
            result = self.read_whole(contender, case)
        rounds.reads.append(result)
        rounds.cpu_seconds.append(cpu.seconds)


def measure_topics(
    bench: Bench, kafka: KafkaCluster, topics: Sequence[TopicSpec], modes: Sequence[str]
) -> Iterator[Measurement]:
    """
    Load one topic after another, and measure each mode on it.
    """
    for mode in modes:
        check_incomplete_is_rejected(bench, mode)
    for topic in topics:
        with loaded_topic(bench.spark, kafka, topic):
            if bench.verifies and "batch" not in modes:
                bench.verify(Case("batch", topic))
            for mode in modes:
                yield from bench.measure(Case(mode, topic))


def check_incomplete_is_rejected(bench: Bench, mode: str) -> None:
    """
    Check that a read with one missing record is rejected, so that no such read is ever timed.
    """
    topic = TopicSpec(100, "none", 2, CHECKED_RECORDS)
    short = TopicSpec(100, "none", 2, CHECKED_RECORDS - 1)
    options = options_for(CEILING, Case(mode, short), bench.bootstrap)
    records = read(bench.spark, mode, CEILING.format, options).records
    try:
        check_records(f"The incomplete reader in {mode}", topic.records, records)
    except IncompleteError as error:
        if error.actual == short.records:
            return
        raise
    msg = f"a {mode} read with a missing record was accepted; the benchmark cannot be trusted"
    raise WrongReadError(msg)
