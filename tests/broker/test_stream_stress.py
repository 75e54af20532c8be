"""
A random schedule of what can happen to topics and queries, with an exact answer (M35).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from tests.support.streams import Stream, add_partitions, delete_topic, recreate_topic

from pyspark_pykafka.testing import KafkaCluster, Record

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS = 50
MOST_TOPICS, MOST_PARTITIONS = 4, 8


@dataclass
class Schedule:
    """
    Takes steps by chance; whatever would lose records waits until the query has seen them.
    """

    kafka: KafkaCluster
    query: Stream
    prefix: str
    chance: random.Random
    topics: dict[str, int] = field(default_factory=dict)
    made: int = 0
    written: list[str] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)

    def step(self) -> None:
        """
        Do one thing, and some writing besides.
        """
        steps = (
            self.add_topic,
            self.delete_topic,
            self.recreate_topic,
            self.add_partitions,
            self.write,
            self.write,
            self.restart,
        )
        chosen = self.chance.choice(steps)
        self.taken.append(chosen.__name__)
        chosen()
        self.write()

    def add_topic(self) -> None:
        """
        Make a topic with a name of its own.
        """
        if len(self.topics) < MOST_TOPICS:
            name = f"{self.prefix}-{self.made}"
            self.made += 1
            self.topics[name] = self.chance.randint(1, 3)
            self.kafka.create_topic(name, self.topics[name])

    def delete_topic(self) -> None:
        """
        Delete a topic of which all was read.
        """
        if len(self.topics) > 1:
            self.settle()
            name = self.chance.choice(sorted(self.topics))
            del self.topics[name]
            delete_topic(self.kafka, name)

    def recreate_topic(self) -> None:
        """
        Delete a topic of which all was read, and write into another of the same name at once.
        """
        self.settle()
        name = self.chance.choice(sorted(self.topics))
        self.topics[name] = self.chance.randint(1, 3)
        recreate_topic(self.kafka, name, self.topics[name])
        self.write(name)

    def add_partitions(self) -> None:
        """
        Let a topic grow.
        """
        name = self.chance.choice(sorted(self.topics))
        if self.topics[name] < MOST_PARTITIONS:
            self.topics[name] += self.chance.randint(1, 2)
            add_partitions(self.kafka, name, self.topics[name])

    def write(self, name: str | None = None) -> None:
        """
        Write some records, each with a value of its own.
        """
        name = name or self.chance.choice(sorted(self.topics))
        partitions = range(self.topics[name])
        records = [
            Record(f"{len(self.written) + n:06}".encode(), partition=self.chance.choice(partitions))
            for n in range(self.chance.randint(0, 30))
        ]
        self.kafka.produce(name, records)
        self.written += [record.value.decode() for record in records if record.value is not None]

    def restart(self) -> None:
        """
        Stop the query, wherever it is, and start it again.
        """
        self.query.stop()
        if self.chance.random() < 0.5:
            self.write()
        self.query.start()

    def settle(self) -> None:
        """
        Wait until each record was seen exactly once.
        """
        self.query.await_values(self.written)


def seeds() -> list[object]:
    """
    Return seeds for every run of the tests, and more for the soak.
    """
    return [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 11))]


@pytest.mark.parametrize("seed", seeds())
def test_random_schedule(
    stream: Callable[..., Stream], topic: Callable[..., str], kafka_cluster: KafkaCluster, seed: int
) -> None:
    """
    M35: topics come, grow, go and come again while a query runs, stops and starts; in the end each
    record was read exactly once.
    """
    prefix = topic()
    query = stream(subscribePattern=f"^{prefix}-", failOnDataLoss="false")
    schedule = Schedule(kafka_cluster, query, prefix, random.Random(seed))
    schedule.add_topic()
    query.start()

    for _ in range(STEPS):
        schedule.step()
    schedule.settle()

    assert len(schedule.written) > STEPS
    assert {"delete_topic", "recreate_topic", "add_partitions", "restart"} <= set(schedule.taken)
