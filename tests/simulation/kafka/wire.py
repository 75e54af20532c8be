"""
Requests and responses as bytes: headers, versions, and which function handles which API.

Messages are decoded and encoded with kafka-python, independently of the code under test.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from kafka.protocol.consumer import FetchResponse
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FindCoordinatorRequest,
    MetadataRequest,
)
from tests.simulation.kafka import (
    api_admin,
    api_fetch,
    api_groups,
    api_members,
    api_metadata,
    api_offsets,
    api_produce,
    api_transactions,
)
from tests.simulation.kafka.call import Call
from tests.simulation.kafka.codes import Code

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.kafka.node import Node, Reply
    from tests.simulation.kafka.releases import Release

API_VERSIONS, PRODUCE = 18, 0
_HEADER, _INT32 = struct.Struct(">hhih"), struct.Struct(">i")
_LARGE_REQUEST = 500


class Header(NamedTuple):
    """
    The header of a request; ``size`` is its length in bytes.
    """

    api_key: int
    version: int
    correlation_id: int
    client_id: str
    size: int


class Api(NamedTuple):
    """
    The versions of an API that brokers advertise, its request's class, and its function.
    """

    versions: tuple[int, int]
    request: Any
    handle: Callable[[Call], None]


APIS: dict[int, Api] = {
    kind.API_KEY: Api(versions, kind, handle)
    for module in (
        api_admin,
        api_fetch,
        api_groups,
        api_members,
        api_metadata,
        api_offsets,
        api_produce,
        api_transactions,
    )
    for kind, versions, handle in module.APIS
}
#: APIs whose responses depend on the metadata alone, and are cached until it changes.
_ABOUT_METADATA = {MetadataRequest.API_KEY, FindCoordinatorRequest.API_KEY}
_RANGES = {API_VERSIONS: (0, 4), **{key: api.versions for key, api in APIS.items()}}


def versions_of(release: Release, api_key: int) -> tuple[int, int]:
    """
    Return the lowest and the highest version of an API in a release; (0, -1) if it has none.
    """
    lowest, newest = _RANGES.get(api_key, (0, -1))
    highest = min(newest, release.max_versions.get(api_key, newest))
    return (lowest, highest) if highest >= lowest else (0, -1)


def read_header(frame: bytes) -> Header:
    key, version, correlation, length = _HEADER.unpack_from(frame)
    size = _HEADER.size + max(length, 0)
    client = frame[_HEADER.size : size].decode()
    request = ApiVersionsRequest if key == API_VERSIONS else getattr(APIS.get(key), "request", None)
    if request is not None and request.flexible_version_q(version):
        # Tagged fields; clients send none.
        assert frame[size] == 0
        size += 1
    return Header(key, version, correlation, client, size)


def expects_reply(frame: bytes) -> bool:
    """
    Return False for a Produce request with acks=0, which brokers do not answer.
    """
    header = read_header(frame)
    if header.api_key != PRODUCE:
        return True
    request = APIS[PRODUCE].request.decode(frame[header.size :], version=header.version)
    return bool(request.acks)


def handle(node: Node, frame: bytes, reply: Reply) -> None:
    """
    Handle one request; a request that a broker cannot read closes the connection.
    """
    header = read_header(frame)
    correlation = _INT32.pack(header.correlation_id)
    if header.api_key == API_VERSIONS:
        release = node.world.settings.release
        reply(correlation + _api_versions(release, header.version, node.throttle_ms))
        return
    lowest, highest = versions_of(node.world.settings.release, header.api_key)
    if not lowest <= header.version <= highest:
        reply(None)
        return
    api = APIS[header.api_key]
    body, key = frame[header.size :], None
    if header.api_key in _ABOUT_METADATA:
        # Clients request the same metadata repeatedly.
        key = (header.api_key, header.version, body, node.throttle_ms, bool(node.named_topics))
        if key in node.answers:
            reply(correlation + node.answers[key])
            return

    def respond(response: Any) -> None:
        if "throttle_time_ms" in response._struct.fields:
            response.throttle_time_ms = node.throttle_ms
            if node.throttle_ms and isinstance(response, FetchResponse):
                # KIP-219: SessionlessFetchContext.getThrottledResponse.
                response.responses = []
        encoded = _encode(response, header.version)
        if key is not None:
            node.answers[key] = encoded
        reply(correlation + encoded)

    request = _decoded(api.request, header.version, body)
    api.handle(Call(node, request, header.version, header.client_id, respond, reply))


def _decoded(kind: Any, version: int, body: bytes) -> Any:
    """
    Return the decoded request. Equal small requests share one object, since no handler changes it.
    """
    if len(body) > _LARGE_REQUEST:
        return kind.decode(body, version=version, header=False)
    return _decoded_once(kind, version, body)


@lru_cache(maxsize=1_000)
def _decoded_once(kind: Any, version: int, body: bytes) -> Any:
    return kind.decode(body, version=version, header=False)


def _encode(response: Any, version: int) -> bytes:
    """
    Return the response after its correlation id.
    """
    front = b"\x00" if type(response).flexible_version_q(version) else b""
    return front + bytes(response.encode(version=version, header=False))


@lru_cache(maxsize=100)
def _api_versions(release: Release, version: int, throttle_ms: int) -> bytes:
    is_supported = version <= versions_of(release, API_VERSIONS)[1]
    ranges = [(key, *versions_of(release, key)) for key in sorted(_RANGES)]
    keys = [
        ApiVersionsResponse.ApiVersion(api_key=key, min_version=low, max_version=high)
        for key, low, high in ranges
        if high >= low
    ]
    error = Code.NONE if is_supported else Code.UNSUPPORTED_VERSION
    response = ApiVersionsResponse(error_code=error, api_keys=keys, throttle_time_ms=throttle_ms)
    # The header is never flexible, so that a client can read the response before it knows which
    # versions the broker supports.
    return bytes(response.encode(version=version if is_supported else 0, header=False))
