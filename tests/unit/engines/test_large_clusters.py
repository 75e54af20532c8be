"""
Planning on a hundred stub brokers that are slow to respond.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.stub_behaviour import LIST_OFFSETS, METADATA
from tests.support.stub_brokers import Behaviour, StubCluster

from pyspark_pykafka.engines.wire.consumer.metadata import WireMetadata
from pyspark_pykafka.errors import PykafkaError
from pyspark_pykafka.offsets import TopicPartition
from pyspark_pykafka.options import parse_stream_source
from pyspark_pykafka.settings import KafkaSettings
from pyspark_pykafka.source.factory import metadata_client
from pyspark_pykafka.source.micro_batch_stream import MicroBatchStream

if TYPE_CHECKING:
    from collections.abc import Callable

BROKERS, PARTITIONS = 100, 10_000


class Late(Behaviour):
    """
    Brokers that respond slowly; each response is built only once, because building one is slow,
    too.
    """

    lag = 0.0
    hung: tuple[int, ...] = ()

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.built_responses: dict[Any, bytes | None] = {}

    def delay(self, node: int, api_key: int) -> float:  # noqa: ARG002
        return 3600.0 if node in self.hung else self.lag

    def answer(self, node: int, api_key: int, version: int, body: bytes) -> bytes | None:
        key = (node if api_key == LIST_OFFSETS else -1, api_key, version, body, self.high_watermark)
        if key not in self.built_responses:
            self.built_responses[key] = super().answer(node, api_key, version, body)
        return self.built_responses[key]


def microbatches(bootstrap: str, topic: str = "t", client_id: str = "pykafka") -> MicroBatchStream:
    options = parse_stream_source(
        {
            "kafka.bootstrap.servers": bootstrap,
            "kafka.client.id": client_id,
            "subscribe": topic,
            "startingOffsets": "earliest",
        }
    )
    return MicroBatchStream(
        options, metadata_client(options), lambda offsets: dict.fromkeys(offsets, 100.0)
    )


def build_responses(bootstrap: str) -> None:
    """
    Plan once with a separate client, so that the brokers build their responses.
    """
    stream = microbatches(bootstrap, client_id="first")
    stream.latest_offset(stream.initial_offset())


def timed(work: Callable[[], Any]) -> float:
    started_at = time.monotonic()
    work()
    return time.monotonic() - started_at


@pytest.mark.parametrize(
    "lag", [0.1, *(pytest.param(lag, marks=pytest.mark.soak) for lag in (0.05, 0.2))]
)
def test_plan_takes_two_rounds_of_requests(lag: float) -> None:
    """
    With open connections a plan sends one metadata request and one request to each leader; no
    connection is closed, and each broker is connected to once.
    """
    stubs = Late(brokers=BROKERS, topics={"t": PARTITIONS}, lag=lag)
    with StubCluster(stubs) as cluster:
        # Otherwise the client may overtake a broker that is still building its first response.
        build_responses(cluster.bootstrap)
        built = cluster.stats()
        stream = microbatches(cluster.bootstrap)
        start = stream.initial_offset()
        end = stream.latest_offset(start)
        before = cluster.stats()
        cluster.set(high_watermark=2000)
        stream.latest_offset(end)
        # By now the stubs have built their responses.
        seconds = min(timed(lambda: stream.latest_offset(end)) for _ in range(2))
        after = cluster.stats()

    assert before["connections"] - built["connections"] <= BROKERS + 1
    assert after["closed"] == built["closed"]
    assert after["connections"] == before["connections"]
    assert after["requests"][METADATA] - before["requests"][METADATA] == 3
    assert after["requests"][LIST_OFFSETS] - before["requests"][LIST_OFFSETS] == 3 * BROKERS
    assert seconds >= 2 * lag


def test_first_plan_connects_to_all_brokers_at_once() -> None:
    """
    A hundred connections are opened concurrently; one after another they would take 20 s.
    """
    stubs = Late(brokers=BROKERS, topics={"t": BROKERS}, lag=0.2)
    with StubCluster(stubs) as cluster:
        stream = microbatches(cluster.bootstrap)
        seconds = timed(lambda: stream.latest_offset(stream.initial_offset()))
        stats = cluster.stats()

    assert seconds < BROKERS * stubs.lag
    assert stats["closed"] == 0
    assert stats["connections"] <= BROKERS + 1


def test_hanging_broker_does_not_affect_the_others() -> None:
    """
    While one broker hangs, each leader gets one request, and the retriable error names the
    partition without a response.
    """
    stubs = Late(brokers=10, topics={"t": 10})
    with StubCluster(stubs) as cluster:
        kafka = KafkaSettings.of(
            {"bootstrap.servers": cluster.bootstrap, "default.api.timeout.ms": "4000"}
        )
        backend = WireMetadata(kafka, "read_uncommitted")
        tps = {TopicPartition("t", number): -1 for number in range(10)}
        assert len(backend.list_offsets(tps)) == 10
        before = cluster.stats()
        cluster.set(hung=(7,))
        with pytest.raises(PykafkaError, match="t-7: no leader returned the offsets") as caught:
            backend.list_offsets(tps)
        after = cluster.stats()

    assert caught.value.retriable
    requests = after["requests"][LIST_OFFSETS] - before["requests"][LIST_OFFSETS]
    assert requests == 10
