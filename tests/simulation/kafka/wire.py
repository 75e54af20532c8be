"""
Requests and responses as bytes: headers, versions, and which function handles which API.

Messages are decoded and encoded with kafka-python, independently of the code under test.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse
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

API_VERSIONS, PRODUCE = 18, 0
_HEADER = struct.Struct(">hhih")


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
_RANGES = {API_VERSIONS: (0, 4), **{key: api.versions for key, api in APIS.items()}}


def read_header(frame: bytes) -> Header:
    key, version, correlation, length = _HEADER.unpack_from(frame)
    size = _HEADER.size + max(length, 0)
    client = frame[_HEADER.size : size].decode()
    request = ApiVersionsRequest if key == API_VERSIONS else getattr(APIS.get(key), "request", None)
    if request is not None and request.flexible_version_q(version):
        # Tagged fields, of which clients send none.
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
    if header.api_key == API_VERSIONS:
        reply(_api_versions(node, header))
        return
    api = APIS.get(header.api_key)
    if api is None or not api.versions[0] <= header.version <= api.versions[1]:
        reply(None)
        return
    request = api.request.decode(frame[header.size :], version=header.version, header=False)

    def respond(response: Any) -> None:
        if "throttle_time_ms" in response._struct.fields:
            response.throttle_time_ms = node.throttle_ms
        reply(_encode(response, header))

    api.handle(Call(node, request, header.version, header.client_id, respond, reply))


def _encode(response: Any, header: Header) -> bytes:
    flexible = type(response).flexible_version_q(header.version)
    front = struct.pack(">i", header.correlation_id) + (b"\x00" if flexible else b"")
    return front + bytes(response.encode(version=header.version, header=False))


def _api_versions(node: Node, header: Header) -> bytes:
    known = header.version <= _RANGES[API_VERSIONS][1]
    keys = [
        ApiVersionsResponse.ApiVersion(api_key=key, min_version=low, max_version=high)
        for key, (low, high) in sorted(_RANGES.items())
    ]
    error = Code.NONE if known else Code.UNSUPPORTED_VERSION
    response = ApiVersionsResponse(
        error_code=error, api_keys=keys, throttle_time_ms=node.throttle_ms
    )
    # The header is never flexible, so that a client can read an answer to a version it guessed.
    body = response.encode(version=header.version if known else 0, header=False)
    return struct.pack(">i", header.correlation_id) + bytes(body)
