"""
Progress recorded while a query is stopped, killed and failed at random: never early, never moving
back.
"""

from __future__ import annotations

import itertools
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

import psutil
import pytest
from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition
from tests.support.processes import command_line
from tests.support.streams import SECONDS, Stream, texts, values

from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from pyspark_pykafka.testing import KafkaCluster
    from pyspark_pykafka.testing.plugin import TopicFactory

PARTITIONS = 2
#: The number of steps of a schedule; after half of them, and at the end, it waits for the recorder.
STEPS, SOAK_STEPS = 6, 10
#: A seed whose few steps include each kind.
FIRST_SEED = 5
PLANNER = "pyspark.sql.streaming.python_streaming_source_runner"

#: A moment on the monotonic clock, and the offset of each partition then.
Moment = tuple[float, tuple[int, ...]]


def faults(recorded: Sequence[Moment], completed: Sequence[Moment]) -> list[str]:
    """
    Return the faults of a recorded history, given the history of completed offsets.
    """
    violations = []
    for (_, before), (seconds, after) in itertools.pairwise(recorded):
        if any(b < a for a, b in zip(before, after, strict=True)):
            violations.append(f"went back from {before} to {after} at {seconds:.3f}")
    for seconds, offsets in recorded:
        done = [ends for moment, ends in completed if moment <= seconds]
        allowed = [max(ends) for ends in zip(*done, strict=True)] or [0] * len(offsets)
        if any(offset > maximum for offset, maximum in zip(offsets, allowed, strict=True)):
            violations.append(f"{offsets} at {seconds:.3f}, and only {allowed} was complete")
    return violations


@pytest.mark.parametrize(
    ("recorded", "text"),
    [
        ([(2.0, (3, 0)), (3.0, (2, 0))], "went back"),
        ([(0.5, (3, 0))], "only [0, 0] was complete"),
        ([(2.0, (3, 1))], "only [3, 0] was complete"),
    ],
)
def test_faults_are_detected(recorded: list[Moment], text: str) -> None:
    """
    A store that moves back, one that is early, and one that is ahead in a single partition are
    found.
    """
    completed = [(1.0, (3, 0))]

    assert faults([(1.5, (1, 0)), (2.5, (3, 0))], completed) == []
    assert text in " ".join(faults(recorded, completed))


@dataclass
class Watch:
    """
    Polls the group's offsets, as a plain client independent of the connector.
    """

    bootstrap: str
    topic: str
    seen: list[Moment] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.topic})
        partitions = [KafkaPartition(self.topic, number) for number in range(PARTITIONS)]
        while not self.over.wait(0.02):
            try:
                committed = consumer.committed(partitions, timeout=SECONDS)
            except KafkaException as error:
                # The coordinator of a new group is still being elected, or loads its log.
                if "COORDINATOR" not in error.args[0].name():
                    raise
                continue
            offsets = tuple(max(position.offset, 0) for position in committed)
            self.seen.append((time.monotonic(), offsets))
        consumer.close()

    def wait_for(self, offsets: tuple[int, ...]) -> None:
        """
        Wait until these offsets are recorded.
        """

        def missing() -> str | None:
            last = self.seen[-1:]
            return None if last and last[0][1] == offsets else f"{offsets}; recorded: {last}"

        wait_until(missing, SECONDS)


@dataclass
class Watched(Stream):
    """
    A stream that records when its sink has received each batch.
    """

    completed: list[Moment] = field(default_factory=list)

    def _gather(self, frame: DataFrame, batch: int) -> None:
        super()._gather(frame, batch)
        ends = [0] * PARTITIONS
        for rows in self.batches.values():
            for partition, offset, _ in rows:
                ends[partition] = max(ends[partition], offset + 1)
        self.completed.append((time.monotonic(), tuple(ends)))


@dataclass
class Schedule:
    """
    Random events in the life of the query.
    """

    kafka: KafkaCluster
    query: Watched
    topic: str
    random: Random
    written: int = 0

    def step(self) -> None:
        count = self.random.randrange(1, 30)
        self.kafka.produce(self.topic, values(self.written, self.written + count))
        self.written += count
        self.random.choice((self.follow, self.follow, self.restart, self.kill, self.fail))()

    def follow(self) -> None:
        self.query.await_values(texts(0, self.written))

    def restart(self) -> None:
        self.query.stop()
        self.query.start()

    def kill(self) -> None:
        """
        Kill the planning process, which contains the recorder.
        """
        for process in psutil.Process().children(recursive=True):
            # Spark's other processes come and go.
            with suppress(psutil.NoSuchProcess):
                if PLANNER in command_line(process):
                    process.kill()
        self.query.stop()
        self.query.start()

    def fail(self) -> None:
        """
        Make a batch fail; the next start reads it again.
        """
        self.query.fail = True
        self.kafka.produce(self.topic, values(self.written, self.written + 1))
        self.written += 1
        query = self.query.query
        assert query is not None
        wait_until(lambda: "still runs" if query.isActive else None, SECONDS)
        self.query.fail = False
        self.query.start()


@pytest.mark.parametrize(
    ("seed", "steps"),
    [
        (FIRST_SEED, STEPS),
        *(pytest.param(seed, SOAK_STEPS, marks=pytest.mark.soak) for seed in range(1, 12)),
    ],
)
def test_history_of_a_group(
    spark: SparkSession,
    kafka_cluster: KafkaCluster,
    topic: TopicFactory,
    checkpoint: str,
    seed: int,
    steps: int,
) -> None:
    """
    A plain client never sees the recorded offsets early or moving back, whatever happens to the
    query.
    """
    name = topic(PARTITIONS)
    options = {
        "kafka.bootstrap.servers": kafka_cluster.bootstrap,
        "subscribe": name,
        "startingOffsets": "earliest",
        "progressStore": "consumerGroup",
        "kafka.group.id": name,
        "kafka.session.timeout.ms": "3000",
    }
    query = Watched(spark, options, checkpoint)
    schedule = Schedule(kafka_cluster, query, name, Random(seed))
    watch = Watch(kafka_cluster.bootstrap, name)
    watching = threading.Thread(target=watch.run)
    watching.start()
    try:
        query.start()
        for step in range(1, steps + 1):
            schedule.step()
            if step % (steps // 2) == 0:
                schedule.follow()
                # Restarts in a row may leave the recorder no time; a query that continues does.
                watch.wait_for(query.completed[-1][1])
    finally:
        query.stop()
        watch.over.set()
        watching.join(SECONDS)

    assert faults(watch.seen, query.completed) == []
    assert len({offsets for _, offsets in watch.seen}) >= 3, "too little was seen to say anything"
