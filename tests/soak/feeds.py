"""
The input topics of a round: plain transactional producers, and the outcome of each record.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from confluent_kafka.admin import NewTopic
from tests.soak.truth import SourceRecord, Truth

from pyspark_pykafka.testing.waiting import NotReadyError, wait_until
from pyspark_pykafka.verify.checker import ABORTED, COMMITTED, UNKNOWN, Verdict
from pyspark_pykafka.verify.records import decode
from pyspark_pykafka.verify.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pyspark_pykafka.testing import KafkaCluster

PARTITIONS = 3
SECONDS = 120.0
COMMITTED_ONLY = {"isolation.level": "read_committed"}
#: The replicas of a changing topic; the third broker keeps the rest of the cluster alive.
FIRST_LEADER, FOLLOWER = 1, 2
_FALL_BEHIND_SECONDS = 8.0
_ELECTION_SECONDS = 60.0


@dataclass
class Feed:
    """
    One input topic and its producers, which run one after another, each with a label of its own.

    Records of labels in ``risky`` may be lost by a change of the topic.
    """

    kafka: KafkaCluster
    topic: str
    label: str
    rate: float
    partitions: int = PARTITIONS
    risky: set[str] = field(default_factory=set)
    #: Labels of a topic that has been deleted since: the current topic has none of their records.
    gone: set[str] = field(default_factory=set)
    _writers: dict[str, Writer] = field(default_factory=dict)
    _is_running: bool = False

    def start(self) -> None:
        """
        Start the next producer.
        """
        label = f"{self.label}{len(self._writers)}"
        config: dict[str, Any] = {"bootstrap.servers": self.kafka.bootstrap}
        writer = Writer(config, label, self.topic, self.partitions, self.rate)
        self._writers[label] = writer
        self._is_running = True
        writer.start()

    def stop(self) -> str | None:
        """
        Stop the producer, and return why it failed, or None.
        """
        self._is_running = False
        writer = list(self._writers.values())[-1]
        writer.stop()
        return None if writer.error is None else f"writing {self.topic}: {writer.error}"

    @property
    def is_running(self) -> bool:
        """
        Whether a producer is writing.
        """
        return self._is_running

    @property
    def last_label(self) -> str:
        """
        The label of the current producer.
        """
        return list(self._writers)[-1]

    @property
    def acknowledged(self) -> int:
        """
        The number of records whose commit was acknowledged.
        """
        return sum(writer.written.committed for writer in self._writers.values())

    def records(self) -> list[SourceRecord]:
        """
        Return the committed records of the topic, read by a plain consumer.
        """
        records = self.kafka.consume(self.topic, COMMITTED_ONLY, SECONDS)
        return [
            SourceRecord(
                record.partition or 0,
                record.offset or 0,
                decode("", record.value, 0).offset,
                record.value or b"",
            )
            for record in records
        ]

    def truth(self, records: list[SourceRecord], brokers: Verdict) -> Truth:
        """
        Return the outcome of each record, by label and partition.

        If the producer does not know the outcome, the topic decides. An acknowledged record that is
        not in the topic was lost by the brokers.
        """
        present = {record.value for record in records}
        truth: Truth = {}
        for label, writer in self._writers.items():
            for (_, partition), written in writer.written.records.items():
                label_partition = (label, partition)
                states = [self._state(label, r.state, r.value in present) for r in written]
                truth[label_partition] = [
                    record._replace(state=state or UNKNOWN)
                    for record, state in zip(written, states, strict=True)
                ]
                lost_records = [
                    (*label_partition, record.offset)
                    for record, state in zip(written, states, strict=True)
                    if state is None
                ]
                brokers.add("lost by the brokers", lost_records)
        return truth

    def _state(self, label: str, state: str, is_there: bool) -> str | None:
        """
        Return the outcome of a record, or None if the brokers have lost it.
        """
        if label in self.risky:
            return ABORTED if state == ABORTED else UNKNOWN
        if label in self.gone or state == ABORTED:
            return state
        if is_there:
            return COMMITTED
        return None if state == COMMITTED else ABORTED


@dataclass
class ChangingFeed(Feed):
    """
    The input of a query that keeps reading while its topic is changed.

    ``is_read`` says whether the query has read all records.
    """

    is_read: Callable[[], bool] = lambda: True

    def create(self) -> None:
        """
        Create the topic with two replicas; each may lead without the other.
        """
        new_topic = NewTopic(
            self.topic,
            num_partitions=self.partitions,
            replica_assignment=[[FIRST_LEADER, FOLLOWER]] * self.partitions,
            config={"unclean.leader.election.enable": "true", "min.insync.replicas": "1"},
        )
        self.kafka._create(new_topic)

    def recreate(self) -> None:
        """
        Delete the topic, and create it again with its original number of partitions.
        """
        self._settle()
        self.gone |= set(self._writers)
        admin = self.kafka.admin()
        admin.delete_topics([self.topic])[self.topic].result(SECONDS)
        wait_until(
            lambda: (
                "not deleted yet" if self.topic in admin.list_topics(timeout=30).topics else None
            ),
            SECONDS,
        )
        self.partitions = PARTITIONS
        self.create()
        self.start()

    def add_partition(self) -> None:
        """
        Add a partition, and write to it from then on.
        """
        from confluent_kafka.admin import NewPartitions

        self.stop()
        self.partitions += 1
        assignment = [[FIRST_LEADER, FOLLOWER]]
        added = NewPartitions(self.topic, self.partitions, assignment)
        # The client must outlive the future that it returns.
        admin = self.kafka.admin()
        admin.create_partitions([added])[self.topic].result(SECONDS)
        self.start()

    def elect_uncleanly(self) -> None:
        """
        Write to one replica alone, kill it, and let the other lead without those records.
        """
        self._settle()
        self.kafka.kill(FOLLOWER)
        self.start()
        self.risky.add(self.last_label)
        time.sleep(_FALL_BEHIND_SECONDS)
        self.stop()
        self.kafka.kill(FIRST_LEADER)
        self.kafka.restart(FOLLOWER)
        wait_until(self._has_leader, _ELECTION_SECONDS)
        self.kafka.restart(FIRST_LEADER)
        self.start()

    def _settle(self) -> None:
        """
        Stop writing, and wait until all records are read; unread ones may be lost afterwards.
        """
        self.stop()
        try:
            wait_until(lambda: None if self.is_read() else "not read yet", SECONDS / 2)
        except NotReadyError:
            self.risky |= set(self._writers)

    def _has_leader(self) -> str | None:
        admin = self.kafka.admin(self.kafka.nodes[2].address)
        partitions = admin.list_topics(self.topic, timeout=30).topics[self.topic].partitions
        leaders = {partition.leader for partition in partitions.values()}
        return None if leaders == {FOLLOWER} else f"{self.topic} is led by {leaders}"
