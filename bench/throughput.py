"""
Measures how fast topics are read: every contender in every round, in an order that changes.
"""

from __future__ import annotations

import math
import sys
import time
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from bench.cases import CEILING, JVM, READERS, Case, Contender, TopicSpec, shuffled_rounds
from bench.figures import ShortReadError, check_records
from bench.load import loaded
from bench.measurement import Measurement, Series
from bench.processes import Cpu, end_workers, worker_peak
from bench.reads import Read, checksum, options_for, read
from bench.session import collect_garbage, jvm_pid

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

    from pyspark_pykafka.testing import KafkaCluster

PLANTED = 20_000


class WrongReadError(RuntimeError):
    """
    A contender delivered as many records as the JVM connector, but not the same ones.
    """


@dataclass(slots=True)
class _Rounds:
    """
    What one contender's rounds were so far.
    """

    reads: list[Read] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)

    def series(self, peak: int | None) -> Series:
        seconds = tuple(read.seconds for read in self.reads)
        return Series(seconds, tuple(self.cpu_seconds), peak)

    def triggers(self) -> Series:
        seconds = [one.trigger_seconds for one in self.reads]
        return Series(tuple(one for one in seconds if one is not None))


@dataclass(frozen=True, slots=True)
class Bench:
    """
    Where reads happen, who takes part, and how often.

    ``inspects`` says whether content and memory are looked at before the rounds; records are
    counted in any case. After ``latest``, on the clock ``time.monotonic``, no further round begins,
    but each case has one.
    """

    spark: SparkSession
    bootstrap: str
    contenders: Sequence[Contender]
    rounds: int
    inspects: bool = True
    latest: float = math.inf

    def measure(self, case: Case) -> Iterator[Measurement]:
        """
        Look at every contender, warm all of them up, then time the rounds; of streams, twice over.
        """
        peaks = self.inspect(case) if self.inspects else {}
        rounds: defaultdict[str, _Rounds] = defaultdict(_Rounds)
        names = [one.name for one in self.contenders]
        for one in self.contenders:
            self.read_whole(one, case)
        for done, order in enumerate(shuffled_rounds(names, self.rounds, seed=case.name)):
            if done and time.monotonic() > self.latest:
                print(f"  {case.name} has {done} of {self.rounds} rounds: no time", file=sys.stderr)
                break
            for name in order:
                self._run(READERS[name], case, rounds[name])
        facts, records = asdict(case.topic), case.topic.records
        series = {name: rounds[name].series(peaks.get(name)) for name in names}
        yield Measurement(case.name, case.mode, series, records, facts)
        if case.mode == "stream":
            triggers = {name: rounds[name].triggers() for name in names}
            yield Measurement(f"{case.name}-trigger", "trigger", triggers, records, facts)

    def read_whole(self, contender: Contender, case: Case) -> Read:
        """
        Read once, and refuse the result if records are missing or doubled.
        """
        options = options_for(contender, case, self.bootstrap)
        result = read(self.spark, case.mode, contender.format, options)
        check_records(f"{contender.name} in {case.name}", case.topic.records, result.records)
        return result

    def inspect(self, case: Case) -> dict[str, int | None]:
        """
        Let each contender read in workers of its own, and return their peaks of memory in bytes.

        In a batch, whoever gives other records in any column than the JVM connector is refused.
        """
        peaks: dict[str, int | None] = {}
        pid = jvm_pid(self.spark)
        wanted = self._checksum(JVM, case) if case.mode == "batch" else None
        for one in self.contenders:
            if one is JVM:
                continue
            end_workers(pid)
            if one.is_ceiling or wanted is None:
                self.read_whole(one, case)
            else:
                self._compare(one, case, wanted)
            peaks[one.name] = worker_peak(pid)
        return peaks

    def _compare(self, contender: Contender, case: Case, wanted: tuple[int, int]) -> None:
        found = self._checksum(contender, case)
        if found != wanted:
            msg = f"{contender.name} read other records of {case.topic.name} than the JVM connector"
            raise WrongReadError(msg)

    def _checksum(self, contender: Contender, case: Case) -> tuple[int, int]:
        options = options_for(contender, case, self.bootstrap)
        found = checksum(self.spark, contender.format, options)
        check_records(f"{contender.name} in {case.name}", case.topic.records, found[0])
        return found

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
    Load one topic after the other, and measure each mode on it.
    """
    for mode in modes:
        prove_refusal(bench, mode)
    for topic in topics:
        with loaded(bench.spark, kafka, topic):
            if bench.inspects and "batch" not in modes:
                bench.inspect(Case("batch", topic))
            for mode in modes:
                yield from bench.measure(Case(mode, topic))


def prove_refusal(bench: Bench, mode: str) -> None:
    """
    Plant a reader that leaves one record out: a bench that times it may not measure anything.
    """
    topic = TopicSpec(100, "none", 2, PLANTED)
    short = TopicSpec(100, "none", 2, PLANTED - 1)
    options = options_for(CEILING, Case(mode, short), bench.bootstrap)
    found = read(bench.spark, mode, CEILING.format, options).records
    try:
        check_records(f"The planted reader in {mode}", topic.records, found)
    except ShortReadError as refusal:
        if refusal.found == short.records:
            return
        raise
    msg = f"A {mode} read that left a record out was counted as whole; nothing can be measured"
    raise WrongReadError(msg)
