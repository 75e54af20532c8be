"""
The Fetch request for many partitions of one leader, and its response.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark_pykafka.engines.wire.protocol.fetch_request import (
    MAX_FETCH_VERSION,
    partition_fields,
    request_limits,
)
from pyspark_pykafka.engines.wire.protocol.fetch_response import (
    FLEXIBLE_FETCH_VERSION,
    MIN_FETCH_VERSION,
    TOPIC_IDS,
    FetchResponse,
    PartitionReader,
)
from pyspark_pykafka.engines.wire.protocol.request import ApiSpec, Request

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

# The first versions with forgotten topics (KIP-227) and a rack (KIP-392). Both are sent empty: no
# fetch session is used, and the leader itself returns the records.
_SESSIONS = 7
_RACKS = 11


class FetchPartition(NamedTuple):
    """
    A requested partition.
    """

    partition_index: int
    current_leader_epoch: int
    fetch_offset: int


class FetchLimits(NamedTuple):
    """
    The limits of a request.

    The broker fills the response with the records of one partition after another until
    ``max_bytes`` is reached, and returns no records of the remaining partitions.

    The first record batch of the response is sent whole, even if it is larger than the limits.
    """

    max_bytes: int
    partition_max_bytes: int
    isolation_level: int


class MultiFetchResponse(NamedTuple):
    """
    The records of all partitions, by topic: its id, or its name in versions without ids.

    ``topics`` is empty if the whole request failed, or if the broker throttles this client.
    """

    throttle_time_ms: int
    topics: list[tuple[UUID | str | None, list[FetchResponse]]]


def multi_fetch_request(
    version: int,
    partitions_by_topic: Mapping[str, Sequence[FetchPartition]],
    topic_ids: Mapping[str, UUID | None],
    limits: FetchLimits,
) -> Request[MultiFetchResponse]:
    """
    Return a Fetch request, which the broker answers at once, with or without records.
    """
    encoding = MULTI_FETCH.encoding(version)
    pieces = [
        request_limits(version, 0, limits.max_bytes, limits.isolation_level),
        encoding.count(len(partitions_by_topic)),
    ]
    for topic, partitions in partitions_by_topic.items():
        by_id = version >= TOPIC_IDS
        pieces += [
            encoding.uuid(topic_ids.get(topic)) if by_id else encoding.string(topic),
            encoding.count(len(partitions)),
        ]
        pieces += [
            partition_fields(version, *partition, limits.partition_max_bytes) + encoding.tags
            for partition in partitions
        ]
        pieces.append(encoding.tags)
    pieces += [
        encoding.count(0) if version >= _SESSIONS else b"",
        encoding.string("") if version >= _RACKS else b"",
        encoding.tags,
    ]
    return Request(MULTI_FETCH, version, b"".join(pieces))


def read_multi_fetch_body(body: memoryview, version: int) -> MultiFetchResponse:
    """
    Return the decoded body of a response; the records are views of it.
    """
    return _Reader(body, version).multi_response()


class _Reader(PartitionReader):
    __slots__ = ()

    def multi_response(self) -> MultiFetchResponse:
        throttle, error = self.top_level_fields()
        topics = 0 if error else self.count()
        return MultiFetchResponse(throttle, [self._topic(throttle) for _ in range(topics)])

    def _topic(self, throttle: int) -> tuple[UUID | str | None, list[FetchResponse]]:
        topic = self.uuid() if self._version >= TOPIC_IDS else self.string()
        partitions = []
        for _ in range(self.count()):
            partitions.append(self.partition(throttle))
            self.skip_tags()
        self.skip_tags()
        return topic, partitions


MULTI_FETCH = ApiSpec(
    "Fetch",
    1,
    (MIN_FETCH_VERSION, MAX_FETCH_VERSION),
    FLEXIBLE_FETCH_VERSION,
    read_multi_fetch_body,
)
