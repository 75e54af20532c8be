"""
The FindCoordinator request for consumer groups and transactional ids, and its response.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark_pykafka.engines.wire.protocol.primitives import INT32, Reader
from pyspark_pykafka.engines.wire.protocol.request import ApiSpec, Request

if TYPE_CHECKING:
    from collections.abc import Sequence

# The first flexible version (Kafka's FindCoordinatorRequest.json).
_FLEXIBLE = 3
#: The first version that takes several keys (Kafka's ``MIN_BATCHED_VERSION``).
MIN_BATCHED_VERSION = 4

#: The types of keys: consumer groups and transactional ids (Kafka's ``CoordinatorType``).
GROUP, TRANSACTION = b"\x00", b"\x01"


class Coordinator(NamedTuple):
    """
    The coordinator of a group or transactional id; ``key`` is the id, None before version 4.
    """

    key: str | None
    host: str
    port: int
    error_code: int


class FindCoordinatorResponse(NamedTuple):
    """
    The coordinators of all requested keys.
    """

    throttle_time_ms: int
    coordinators: list[Coordinator]


def find_coordinator_request(
    version: int, key_type: bytes, keys: Sequence[str]
) -> Request[FindCoordinatorResponse]:
    """
    Return a FindCoordinator request for keys of a type; before version 4 for a single key.
    """
    encoding = FIND_COORDINATOR.encoding(version)
    if version >= MIN_BATCHED_VERSION:
        array = b"".join((encoding.count(len(keys)), *map(encoding.string, keys)))
        body = key_type + array + encoding.tags
    else:
        (key,) = keys
        body = encoding.string(key) + key_type + encoding.tags
    return Request(FIND_COORDINATOR, version, body)


def read_find_coordinator_response(body: memoryview, version: int) -> FindCoordinatorResponse:
    """
    Return a decoded response, in the same form for all versions.
    """
    reader = Reader(body, version, _FLEXIBLE)
    throttle = reader.int32()
    if version >= MIN_BATCHED_VERSION:
        coordinators = [_keyed_coordinator(reader) for _ in range(reader.count())]
    else:
        coordinators = [_coordinator(reader)]
    reader.skip_tags()
    return FindCoordinatorResponse(throttle, coordinators)


def _keyed_coordinator(reader: Reader) -> Coordinator:
    key, _node, host, port = reader.string(), reader.int32(), reader.string(), reader.int32()
    error = reader.int16()
    reader.skip_string()
    reader.skip_tags()
    return Coordinator(key, host or "", port, error)


def _coordinator(reader: Reader) -> Coordinator:
    error = reader.int16()
    reader.skip_string()
    reader.skip(INT32.size)
    return Coordinator(None, reader.string() or "", reader.int32(), error)


#: Version 0 is not used: it has no key types, and finds only the coordinators of groups.
FIND_COORDINATOR = ApiSpec(
    "FindCoordinator", 10, (1, MIN_BATCHED_VERSION), _FLEXIBLE, read_find_coordinator_response
)
