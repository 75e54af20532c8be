"""
What the driver makes of librdkafka's answers that no healthy cluster gives.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaError, KafkaException

from pyspark_pykafka.engines.librdkafka.metadata import AdminMetadata
from pyspark_pykafka.engines.metadata import MetadataClient
from pyspark_pykafka.errors import BrokerUnavailableError
from pyspark_pykafka.offsets import TopicPartition
from pyspark_pykafka.retry import RetryPolicy
from pyspark_pykafka.settings import KafkaSettings

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Answer(NamedTuple):
    """
    The parts of librdkafka's answer that are used; the epoch is None where brokers do not tell it.
    """

    offset: int
    leader_epoch: int | None = None


@dataclass
class Admin:
    """
    Stands in for the client of a cluster that loses a leader just when it is asked.
    """

    offsets: list[dict[TopicPartition, int] | KafkaError]
    asked: int = field(default=0)

    def list_offsets(self, specs: dict[Any, Any], **_: Any) -> dict[Any, Future[Answer]]:
        found = self.offsets[min(self.asked, len(self.offsets) - 1)]
        self.asked += 1
        answers = {}
        for position in specs:
            future: Future[Answer] = Future()
            answers[position] = future
            if isinstance(found, KafkaError):
                future.set_exception(KafkaException(found))
                continue
            future.set_result(Answer(found[TopicPartition(position.topic, position.partition)]))
        return answers


def broker(admin: Admin, timeout_ms: int = 60_000) -> MetadataClient:
    """
    Return a driver's view through that client.
    """
    settings = {"bootstrap.servers": "b:1", "default.api.timeout.ms": str(timeout_ms)}
    backend = AdminMetadata(KafkaSettings.of(settings), "read_uncommitted")
    backend._admin.client = lambda: admin  # type: ignore[assignment, method-assign, return-value]
    return MetadataClient(backend, RetryPolicy(1, 0))


def test_leader_that_was_lost_is_asked_again() -> None:
    """
    Librdkafka gives -1001 for a partition whose leader it lost, and no error; taken for an offset,
    a query would start there.
    """
    admin = Admin([{P0: -1001, P1: 4}, {P0: 7, P1: -1001}, {P0: 7, P1: 4}])

    assert broker(admin).log_start_offsets([P0, P1]) == {P0: 7, P1: 4}
    assert admin.asked == 3


def test_a_cluster_without_leaders_is_asked_again() -> None:
    """
    A lone broker that was killed and comes back has none for a while, and librdkafka says no more
    of it than that something was not found.
    """
    lost = KafkaError(KafkaError._NOENT, "Failed to query partition leaders: No leaders found")
    admin = Admin([lost, lost, lost, lost, {P0: 7}])

    assert broker(admin).log_start_offsets([P0]) == {P0: 7}


def test_leader_that_stays_away_is_named() -> None:
    """
    Asking again ends with the time for a question, naming the partition.
    """
    with pytest.raises(BrokerUnavailableError, match="t-0: no leader returned the offsets"):
        broker(Admin([{P0: -1001, P1: 4}]), timeout_ms=300).end_offsets([P0, P1])


def test_no_record_of_that_time_is_an_answer() -> None:
    """
    -1 says that no record is as young; it is not asked again.
    """
    admin = Admin([{P0: -1, P1: 4}])

    assert broker(admin).offsets_for_times({P0: 1, P1: 1}) == {P0: None, P1: 4}
    assert admin.asked == 1
