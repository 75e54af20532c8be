"""
The Fetch request for one partition.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from pyspark_pykafka.engines.wire.protocol.fetch_response import (
    FLEXIBLE_FETCH_VERSION,
    MIN_FETCH_VERSION,
    read_fetch_body,
)
from pyspark_pykafka.engines.wire.protocol.primitives import INT32, INT64
from pyspark_pykafka.engines.wire.protocol.request import ApiSpec, Request

if TYPE_CHECKING:
    from uuid import UUID

    from pyspark_pykafka.engines.wire.protocol.fetch_response import FetchResponse
    from pyspark_pykafka.offsets import TopicPartition

#: The newest versions that bring something: topic ids in 13, and 17 for brokers that require it.
MAX_FETCH_VERSION = 17
MAX_FETCH_VERSION_BY_NAME = 12

# What came with which version (Kafka's FetchRequest.json).
_LOG_START = 5
_SESSIONS = 7
_LEADER_EPOCHS = 9
_RACKS = 11
_LAST_EPOCH = 12
_TOPIC_IDS = 13
_WITHOUT_REPLICA = 15

_CONSUMER = -1
_LEAST_BYTES = 1
# The longest wait, and how many bytes at least and at most; then the isolation level.
_LIMITS = struct.Struct(">iiib")
# No session: it saves naming many partitions again, and there is only one here.
_NO_SESSION = struct.pack(">ii", 0, -1)
_NO_LAST_EPOCH = INT32.pack(-1)
_NO_LOG_START = INT64.pack(-1)

FETCH = ApiSpec.of(
    "Fetch", 1, (MIN_FETCH_VERSION, MAX_FETCH_VERSION), FLEXIBLE_FETCH_VERSION, read_fetch_body
)


class FetchRequest(NamedTuple):
    """
    What is asked for: records from ``offset`` on, of about ``size`` bytes at most.

    The broker waits up to ``wait_ms`` for the first one. With a ``rack`` it may name a replica
    there instead. ``topic_id`` is told from version 13 on, the topic's name before.
    """

    tp: TopicPartition
    topic_id: UUID | None
    leader_epoch: int
    offset: int
    size: int
    wait_ms: int
    isolation: int
    rack: str


def fetch_request(version: int, wish: FetchRequest) -> Request[FetchResponse]:
    """
    Ask a broker for records.
    """
    encoding = FETCH.encoding(version)
    by_id = version >= _TOPIC_IDS
    has_session = version >= _SESSIONS
    pieces = (
        b"" if version >= _WITHOUT_REPLICA else INT32.pack(_CONSUMER),
        _LIMITS.pack(wish.wait_ms, _LEAST_BYTES, wish.size, wish.isolation),
        _NO_SESSION if has_session else b"",
        encoding.count(1),
        encoding.uuid(wish.topic_id) if by_id else encoding.string(wish.tp.topic),
        encoding.count(1),
        _partition(version, wish),
        # Behind the partition, and the topic.
        2 * encoding.tags,
        # Nothing is forgotten of a session that is none.
        encoding.count(0) if has_session else b"",
        encoding.string(wish.rack) if version >= _RACKS else b"",
        encoding.tags,
    )
    return Request(FETCH, version, b"".join(pieces))


def _partition(version: int, wish: FetchRequest) -> bytes:
    return b"".join(
        (
            INT32.pack(wish.tp.partition),
            INT32.pack(wish.leader_epoch) if version >= _LEADER_EPOCHS else b"",
            INT64.pack(wish.offset),
            _NO_LAST_EPOCH if version >= _LAST_EPOCH else b"",
            _NO_LOG_START if version >= _LOG_START else b"",
            INT32.pack(wish.size),
        )
    )
