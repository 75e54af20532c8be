"""
The Fetch request for one partition.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from pyspark_pykafka.engines.wire.protocol.fetch_response import (
    FLEXIBLE_FETCH_VERSION,
    MIN_FETCH_VERSION,
    TOPIC_IDS,
    read_fetch_body,
)
from pyspark_pykafka.engines.wire.protocol.primitives import INT32, INT64
from pyspark_pykafka.engines.wire.protocol.request import ApiSpec, Request

if TYPE_CHECKING:
    from uuid import UUID

    from pyspark_pykafka.engines.wire.protocol.fetch_response import FetchResponse
    from pyspark_pykafka.offsets import TopicPartition

#: The newest version that we use, and the newest with topic names instead of topic ids (KIP-516).
MAX_FETCH_VERSION = 17
MAX_FETCH_VERSION_BY_NAME = 12

# The first version with each field (Kafka's FetchRequest.json).
_LOG_START = 5
_SESSIONS = 7
_LEADER_EPOCHS = 9
_RACKS = 11
_LAST_FETCHED_EPOCH = 12
_WITHOUT_REPLICA_ID = 15

_CONSUMER_REPLICA_ID = -1
_MIN_BYTES = 1
# max_wait_ms, min_bytes, max_bytes, isolation_level.
_LIMITS = struct.Struct(">iiib")
# No fetch session (KIP-227): it would save repeating many partitions, and we request only one.
_NO_SESSION = struct.pack(">ii", 0, -1)
_NO_LAST_FETCHED_EPOCH = INT32.pack(-1)
_NO_LOG_START = INT64.pack(-1)

FETCH = ApiSpec(
    "Fetch", 1, (MIN_FETCH_VERSION, MAX_FETCH_VERSION), FLEXIBLE_FETCH_VERSION, read_fetch_body
)


class FetchRequest(NamedTuple):
    """
    The fields of a Fetch request for one partition, named as in Kafka's schema.

    A response may exceed ``max_bytes`` by one record batch. The broker waits up to ``max_wait_ms``
    for the first record. With a ``rack_id``, it may name a replica in that rack instead of
    returning records (KIP-392). Requests from version 13 on hold ``topic_id``, earlier ones the
    topic's name.
    """

    tp: TopicPartition
    topic_id: UUID | None
    current_leader_epoch: int
    fetch_offset: int
    max_bytes: int
    max_wait_ms: int
    isolation_level: int
    rack_id: str


def fetch_request(version: int, fields: FetchRequest) -> Request[FetchResponse]:
    """
    Return a Fetch request.
    """
    encoding = FETCH.encoding(version)
    uses_topic_ids = version >= TOPIC_IDS
    has_session = version >= _SESSIONS
    pieces = (
        request_limits(version, fields.max_wait_ms, fields.max_bytes, fields.isolation_level),
        encoding.count(1),
        encoding.uuid(fields.topic_id) if uses_topic_ids else encoding.string(fields.tp.topic),
        encoding.count(1),
        partition_fields(
            version,
            fields.tp.partition,
            fields.current_leader_epoch,
            fields.fetch_offset,
            fields.max_bytes,
        ),
        # The tagged fields of the partition, and of the topic.
        2 * encoding.tags,
        # No forgotten topics, since there is no session.
        encoding.count(0) if has_session else b"",
        encoding.string(fields.rack_id) if version >= _RACKS else b"",
        encoding.tags,
    )
    return Request(FETCH, version, b"".join(pieces))


def request_limits(version: int, max_wait_ms: int, max_bytes: int, isolation_level: int) -> bytes:
    """
    Return the fields before the topics.
    """
    replica_id = b"" if version >= _WITHOUT_REPLICA_ID else INT32.pack(_CONSUMER_REPLICA_ID)
    limits = _LIMITS.pack(max_wait_ms, _MIN_BYTES, max_bytes, isolation_level)
    return replica_id + limits + (_NO_SESSION if version >= _SESSIONS else b"")


def partition_fields(
    version: int, partition: int, leader_epoch: int, fetch_offset: int, max_bytes: int
) -> bytes:
    """
    Return the fields of a partition, without tagged fields.
    """
    return b"".join(
        (
            INT32.pack(partition),
            INT32.pack(leader_epoch) if version >= _LEADER_EPOCHS else b"",
            INT64.pack(fetch_offset),
            _NO_LAST_FETCHED_EPOCH if version >= _LAST_FETCHED_EPOCH else b"",
            _NO_LOG_START if version >= _LOG_START else b"",
            INT32.pack(max_bytes),
        )
    )
