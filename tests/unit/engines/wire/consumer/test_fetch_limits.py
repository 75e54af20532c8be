"""
The number of bytes that a reader requests fits the responses that its connection accepts.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
from tests.support import fetching
from tests.support.stub_brokers import Behaviour, StubCluster

from pyspark_pykafka.engines.selection import fetch
from pyspark_pykafka.offsets import OffsetRange, TopicPartition
from pyspark_pykafka.settings import KafkaSettings
from pyspark_pykafka.settings.wire_config import wire_config

T0 = TopicPartition("t", 0)
END = 10**9


class RecordingRequests(Behaviour):
    """
    A broker that keeps the largest number of requested bytes.
    """

    requested_bytes = 0

    def _on_1(self, node: int, request: Any) -> Any:
        partitions = (p.partition_max_bytes for t in request.topics for p in t.partitions)
        self.requested_bytes = max(self.requested_bytes, request.max_bytes, *partitions)
        return super()._on_1(node, request)


@pytest.mark.parametrize(
    "kafka",
    [
        {},
        {"receive.message.max.bytes": "60000000"},
        {"receive.message.max.bytes": "1000", "fetch.max.bytes": "200000000"},
    ],
)
def test_a_request_fits_the_limit_of_a_response(kafka: dict[str, str]) -> None:
    """
    However much memory a task has, it requests less than the connection accepts, with room for the
    rest of the response.
    """
    with StubCluster(RecordingRequests(high_watermark=END)) as stubs:
        kafka_settings = KafkaSettings.of({"bootstrap.servers": stubs.bootstrap, **kafka})
        settings = fetching.settings(
            stubs.bootstrap,
            "wire",
            schema=fetching.VALUES,
            kafka=kafka_settings,
            memory_bytes=8 << 30,
        )
        batches = fetch(OffsetRange(T0, 0, END), settings)
        assert sum(batch.num_rows for batch in islice(batches, 3)) > 0
        requested = stubs.get("requested_bytes")

    limit = wire_config(kafka_settings).receive_message_max_bytes
    assert limit * 0.9 < requested < limit * 0.95
