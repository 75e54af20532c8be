"""
Which topics the driver selects, and how it handles responses of librdkafka that a healthy cluster
never gives.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaError, KafkaException

from pyspark_pykafka.engines.librdkafka.metadata import AdminMetadata
from pyspark_pykafka.engines.metadata import MetadataClient
from pyspark_pykafka.engines.metadata_contract import Topic
from pyspark_pykafka.errors import BrokerUnavailableError
from pyspark_pykafka.offsets import TopicPartition
from pyspark_pykafka.options import Assign, Strategy, Subscribe, SubscribePattern
from pyspark_pykafka.retry import RetryPolicy
from pyspark_pykafka.settings import KafkaSettings

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Answer(NamedTuple):
    """
    The fields of librdkafka's results that are used; the epoch is None on old brokers.
    """

    offset: int
    leader_epoch: int | None = None


@dataclass
class Admin:
    """
    Stands in for the client of a cluster that loses a leader during a request.
    """

    offsets: list[dict[TopicPartition, int] | KafkaError]
    request_count: int = field(default=0)

    def list_offsets(self, specs: dict[Any, Any], **_: Any) -> dict[Any, Future[Answer]]:
        offsets = self.offsets[min(self.request_count, len(self.offsets) - 1)]
        self.request_count += 1
        answers = {}
        for position in specs:
            future: Future[Answer] = Future()
            answers[position] = future
            if isinstance(offsets, KafkaError):
                future.set_exception(KafkaException(offsets))
                continue
            future.set_result(Answer(offsets[TopicPartition(position.topic, position.partition)]))
        return answers


def metadata_client(admin: Admin, timeout_ms: int = 60_000) -> MetadataClient:
    """
    Return a MetadataClient with that admin client.
    """
    settings = {"bootstrap.servers": "b:1", "default.api.timeout.ms": str(timeout_ms)}
    backend = AdminMetadata(KafkaSettings.of(settings), "read_uncommitted")
    backend._admin.client = lambda: admin  # type: ignore[method-assign]
    return MetadataClient(backend, RetryPolicy(1, 0))


def test_offset_of_a_lost_leader_is_requested_again() -> None:
    """
    Librdkafka returns -1001 without an error for a partition whose leader it lost; if that were
    taken for an offset, a query would start there.
    """
    admin = Admin([{P0: -1001, P1: 4}, {P0: 7, P1: -1001}, {P0: 7, P1: 4}])

    assert metadata_client(admin).log_start_offsets([P0, P1]) == {P0: 7, P1: 4}
    assert admin.request_count == 3


def test_cluster_without_leaders_is_requested_again() -> None:
    """
    The error _NOENT, all that librdkafka reports for a restarted single broker, is retried.
    """
    no_leaders = KafkaError(
        KafkaError._NOENT, "Failed to query partition leaders: No leaders found"
    )
    admin = Admin([*[no_leaders] * 4, {P0: 7}])

    assert metadata_client(admin).log_start_offsets([P0]) == {P0: 7}


def test_missing_leader_is_reported_after_the_timeout() -> None:
    """
    The retries end after the timeout, with an error that names the partition.
    """
    with pytest.raises(BrokerUnavailableError, match="t-0: no leader returned the offsets"):
        metadata_client(Admin([{P0: -1001, P1: 4}]), timeout_ms=300).end_offsets([P0, P1])


def test_time_without_a_record_has_no_offset() -> None:
    """
    -1 means that no record is that recent; the request is not repeated.
    """
    admin = Admin([{P0: -1, P1: 4}])

    assert metadata_client(admin).offsets_for_times({P0: 1, P1: 1}) == {P0: None, P1: 4}
    assert admin.request_count == 1


INTERNAL = "__consumer_offsets"


def client_of(topics: dict[str, Topic]) -> MetadataClient:
    """
    Return a MetadataClient of a cluster with these topics.
    """
    backend = AdminMetadata(KafkaSettings.of({"bootstrap.servers": "b:1"}), "read_uncommitted")
    backend.describe_topics = lambda names: {  # type: ignore[method-assign]
        name: topics[name] for name in names
    }
    backend.describe_matching_topics = lambda matches: {  # type: ignore[method-assign]
        name: topic for name, topic in topics.items() if matches(name)
    }
    return MetadataClient(backend, RetryPolicy(1, 0))


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        (Subscribe((INTERNAL,)), [TopicPartition(INTERNAL, 0), TopicPartition(INTERNAL, 1)]),
        (Assign((TopicPartition(INTERNAL, 1),)), [TopicPartition(INTERNAL, 1)]),
        (SubscribePattern(".*"), [P0]),
    ],
    ids=["subscribe", "assign", "pattern"],
)
def test_internal_topics_are_read_only_by_name(
    strategy: Strategy, expected: list[TopicPartition]
) -> None:
    """
    As with the JVM connector, a pattern does not select Kafka's internal topics; a name does.
    """
    client = client_of(
        {
            "t": Topic("a", is_internal=False, partitions=[0]),
            INTERNAL: Topic("b", is_internal=True, partitions=[0, 1]),
        }
    )

    assert list(client.assignment(strategy).partitions) == expected
