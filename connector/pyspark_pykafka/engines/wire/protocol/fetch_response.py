"""
A Fetch response for one partition, read where it lies.

kafka-python's decoder copies the records out of the response, which was a quarter of the CPU time
of a whole read; here they stay a view of the connection's buffer.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from pyspark_pykafka.engines.wire.protocol.primitives import Reader
from pyspark_pykafka.errors import KafkaClientError

if TYPE_CHECKING:
    from pyspark_pykafka.engines.wire.protocol.frames import Frame

# What came with which version of the response (Kafka's FetchResponse.json).
_LOG_START = 5
_SESSIONS = 7
_REPLICAS = 11
_TOPIC_IDS = 13

#: Older versions know nothing of transactions, nor of record batches.
MIN_FETCH_VERSION = 4
#: The first whose requests and responses are flexible.
FLEXIBLE_FETCH_VERSION = 12

_BAD_MESSAGE = (-199, "_BAD_MSG")
_UUID_BYTES = 16


class FetchResponse(NamedTuple):
    """
    What a broker says of the one partition that was asked for.

    ``error_code`` is the partition's, or that of the whole response. ``records`` is a view of the
    frame, whose memory is used again once nobody has one. ``aborted`` holds (first offset,
    producer id). ``partition`` is its number, -1 where an error of the whole response names none.
    """

    throttle_ms: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    aborted: tuple[tuple[int, int], ...]
    preferred_read_replica: int
    records: memoryview
    partition: int = -1


def read_fetch_response(frame: Frame) -> FetchResponse:
    """
    Return the answer in a frame.

    Raises :class:`KafkaClientError` for what is no Fetch response with one partition.
    """
    try:
        return read_fetch_body(frame.body, frame.version)
    except (IndexError, ValueError, struct.error) as cause:
        msg = f"a broker's answer is no FetchResponse for one partition: {cause}"
        raise KafkaClientError(msg, *_BAD_MESSAGE, retriable=True) from cause


def read_fetch_body(body: memoryview, version: int) -> FetchResponse:
    """
    Return the same of a body; what it raises is that of :class:`Reader`.
    """
    return _Reader(body, version).answer()


class _Reader(Reader):
    __slots__ = ("_body",)

    def __init__(self, body: memoryview, version: int) -> None:
        super().__init__(body, version, FLEXIBLE_FETCH_VERSION)
        self._body = body

    def answer(self) -> FetchResponse:
        throttle = self.int32()
        if self._version >= _SESSIONS:
            error = self.int16()
            self.int32()
        else:
            error = 0
        if error:
            # Of the whole response: there need be no partition in it.
            return FetchResponse(throttle, error, -1, -1, (), -1, self._body[:0])
        self.expect_one("topics")
        self.skip(_UUID_BYTES if self._version >= _TOPIC_IDS else self.text_size())
        self.expect_one("partitions")
        partition = self.int32()
        error = self.int16()
        high_watermark, last_stable = self.int64(), self.int64()
        if self._version >= _LOG_START:
            self.int64()
        aborted = tuple(self._aborted() for _ in range(max(self.count(), 0)))
        replica = self.int32() if self._version >= _REPLICAS else -1
        return FetchResponse(
            throttle,
            error,
            high_watermark,
            last_stable,
            aborted,
            replica,
            self._records(),
            partition,
        )

    def _aborted(self) -> tuple[int, int]:
        producer, first = self.int64(), self.int64()
        self.skip_tags()
        return first, producer

    def _records(self) -> memoryview:
        size = max(self.varint() - 1 if self._flexible else self.int32(), 0)
        start = self._at
        self.skip(size)
        return self._body[start : start + size]
