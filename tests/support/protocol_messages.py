"""
Hypothesis strategies for protocol messages, and the bytes of messages from us and kafka-python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from pyspark_pykafka.engines.wire.protocol.frames import Frame
from pyspark_pykafka.offsets import TopicPartition

if TYPE_CHECKING:
    from pyspark_pykafka.engines.wire.protocol.request import ApiSpec, Request

int8 = st.integers(0, 1)
int16 = st.integers(-(2**15), 2**15 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40) | st.just("é" * 100)
names = texts.filter(bool)
ids = st.none() | st.uuids().filter(lambda value: value.int)
tps = st.builds(TopicPartition, names, int32)
# With more than 127 replicas, the length of an array has two bytes.
nodes = st.lists(int32, max_size=3) | st.just(list(range(130)))


def versions(api: ApiSpec[Any]) -> st.SearchStrategy[int]:
    """
    Return the versions of an API that we support.
    """
    return st.integers(*api.valid_versions)


def sent_by_kafka_python(request: Any) -> bytes:
    """
    Return the bytes of a request of kafka-python, with the same header as :func:`sent`.
    """
    request.with_header(7, "client-é")
    return bytes(request.encode(header=True, framed=True))


def sent(request: Request[Any]) -> bytes:
    """
    Return the bytes of our request as a connection sends it.
    """
    return request.encode(7, "client-é")


def read(api: ApiSpec[Any], version: int, body: bytes) -> Any:
    """
    Return a response as a connection decodes it.
    """
    return Frame(api.response, version, memoryview(bytearray(body))).decode()


def decoded_by_both(api: ApiSpec[Any], version: int, reference: Any) -> tuple[Any, Any]:
    """
    Decode the same bytes with our decoder and with kafka-python's, and return both responses.
    """
    body = bytes(reference.encode(version=version))
    expected = type(reference).decode(body, version=version, header=False)
    response = read(api, version, body)
    assert response.throttle_time_ms == (expected.throttle_time_ms or 0)
    return response, expected
