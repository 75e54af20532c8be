"""
A random schedule of events on topics and queries, with an exact result.
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

STEPS, SOAK_STEPS = 10, 50
MAX_TOPICS, MAX_PARTITIONS = 4, 8
#: A seed whose few steps include each kind.
FIRST_SEED = 12


@dataclass
class Schedule:
    """
    Runs random steps; a step that would lose records first waits until the query has read them.
    """

    kafka: KafkaCluster
    query: Stream
    prefix: str
    rng: random.Random
    topics: dict[str, int] = field(default_factory=dict)
    created: int = 0
    written: list[str] = field(default_factory=list)
    steps_taken: list[str] = field(default_factory=list)

    def step(self) -> None:
        """
        Run one random step, and then write records.
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
        step_method = self.rng.choice(steps)
        self.steps_taken.append(step_method.__name__)
        step_method()
        self.write()

    def add_topic(self) -> None:
        """
        Create a topic with a new name.
        """
        if len(self.topics) < MAX_TOPICS:
            name = f"{self.prefix}-{self.created}"
            self.created += 1
            self.topics[name] = self.rng.randint(1, 3)
            self.kafka.create_topic(name, self.topics[name])

    def delete_topic(self) -> None:
        """
        Delete a topic after all its records were read.
        """
        if len(self.topics) > 1:
            self.settle()
            name = self.rng.choice(sorted(self.topics))
            del self.topics[name]
            delete_topic(self.kafka, name)

    def recreate_topic(self) -> None:
        """
        Delete a topic after all its records were read, recreate it, and write to it at once.
        """
        self.settle()
        name = self.rng.choice(sorted(self.topics))
        self.topics[name] = self.rng.randint(1, 3)
        recreate_topic(self.kafka, name, self.topics[name])
        self.write(name)

    def add_partitions(self) -> None:
        """
        Add partitions to a topic.
        """
        name = self.rng.choice(sorted(self.topics))
        if self.topics[name] < MAX_PARTITIONS:
            self.topics[name] += self.rng.randint(1, 2)
            add_partitions(self.kafka, name, self.topics[name])

    def write(self, name: str | None = None) -> None:
        """
        Write some records with distinct values.
        """
        name = name or self.rng.choice(sorted(self.topics))
        partitions = range(self.topics[name])
        records = [
            Record(f"{len(self.written) + n:06}".encode(), partition=self.rng.choice(partitions))
            for n in range(self.rng.randint(0, 30))
        ]
        self.kafka.produce(name, records)
        self.written += [record.value.decode() for record in records if record.value is not None]

    def restart(self) -> None:
        """
        Stop the query at any point, and restart it.
        """
        self.query.stop()
        if self.rng.random() < 0.5:
            self.write()
        self.query.start()

    def settle(self) -> None:
        """
        Wait until each record was read exactly once.
        """
        self.query.await_values(self.written)


def seeds() -> list[object]:
    """
    Return one seed with few steps for every run, and more seeds with more steps for the soak.
    """
    soak = [pytest.param(seed, SOAK_STEPS, marks=pytest.mark.soak) for seed in range(1, 11)]
    return [(FIRST_SEED, STEPS), *soak]


@pytest.mark.parametrize(("seed", "steps"), seeds())
def test_random_schedule(
    stream: Callable[..., Stream],
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    seed: int,
    steps: int,
) -> None:
    """
    Topics are created, grow, and are deleted and recreated while a query runs and restarts;
    in the end each record was read exactly once.
    """
    prefix = topic()
    query = stream(subscribePattern=f"^{prefix}-", failOnDataLoss="false")
    schedule = Schedule(kafka_cluster, query, prefix, random.Random(seed))
    schedule.add_topic()
    query.start()

    for _ in range(steps):
        schedule.step()
    schedule.settle()

    assert len(schedule.written) > steps
    assert {"delete_topic", "recreate_topic", "add_partitions", "restart"} <= set(
        schedule.steps_taken
    )
