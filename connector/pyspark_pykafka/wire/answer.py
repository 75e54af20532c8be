"""
A Fetch response for one partition, read where it lies.

kafka-python's decoder copies the records out of the response, which was a quarter of the CPU time
of a whole read; here they stay a view of the connection's buffer.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_pykafka.errors import KafkaClientError

if TYPE_CHECKING:
    from pyspark_pykafka.wire.frames import Frame

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")

# What came with which version of the response (Kafka's FetchResponse.json).
_LOG_START = 5
_SESSIONS = 7
_REPLICAS = 11
_FLEXIBLE = 12
_TOPIC_IDS = 13

#: Older versions know nothing of transactions, nor of record batches.
OLDEST_FETCH = 4

_BAD_MESSAGE = (-199, "_BAD_MSG")
_UUID_BYTES = 16


@dataclass(frozen=True, slots=True)
class FetchAnswer:
    """
    What a broker says of the one partition that was asked for.

    ``error_code`` is the partition's, or that of the whole response. ``records`` is valid until
    the connection receives the next answer. ``aborted`` holds (first offset, producer id).
    """

    throttle_ms: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    aborted: tuple[tuple[int, int], ...]
    preferred_read_replica: int
    records: memoryview


def read_fetch_answer(frame: Frame) -> FetchAnswer:
    """
    Return the answer in a frame.

    Raises :class:`KafkaClientError` for what is no Fetch response with one partition.
    """
    try:
        return _Reader(frame.body, frame.version).answer()
    except (IndexError, ValueError, struct.error) as cause:
        msg = f"a broker's answer is no FetchResponse for one partition: {cause}"
        raise KafkaClientError(msg, *_BAD_MESSAGE, retriable=True) from cause


class _Reader:
    """
    Takes one value after another from a response.
    """

    def __init__(self, view: memoryview, version: int) -> None:
        self._view = view
        self._version = version
        self._flexible = version >= _FLEXIBLE
        self._at = 0

    def answer(self) -> FetchAnswer:
        throttle = self._int32()
        if self._version >= _SESSIONS:
            error = self._int16()
            self._int32()
        else:
            error = 0
        if error:
            # Of the whole response: there need be no partition in it.
            return FetchAnswer(throttle, error, -1, -1, (), -1, self._view[:0])
        self._expect_one("topics")
        self._skip(_UUID_BYTES if self._version >= _TOPIC_IDS else self._text_size())
        self._expect_one("partitions")
        self._int32()
        error = self._int16()
        high_watermark, last_stable = self._int64(), self._int64()
        if self._version >= _LOG_START:
            self._int64()
        aborted = tuple(self._aborted() for _ in range(max(self._count(), 0)))
        replica = self._int32() if self._version >= _REPLICAS else -1
        return FetchAnswer(
            throttle, error, high_watermark, last_stable, aborted, replica, self._records()
        )

    def _aborted(self) -> tuple[int, int]:
        producer, first = self._int64(), self._int64()
        self._skip_tags()
        return first, producer

    def _records(self) -> memoryview:
        size = max(self._varint() - 1 if self._flexible else self._int32(), 0)
        start = self._at
        self._skip(size)
        return self._view[start : start + size]

    def _expect_one(self, what: str) -> None:
        count = self._count()
        if count != 1:
            msg = f"it has {count} {what}"
            raise ValueError(msg)

    def _count(self) -> int:
        """
        Return the size of an array, -1 for null.
        """
        return self._varint() - 1 if self._flexible else self._int32()

    def _text_size(self) -> int:
        return self._varint() - 1 if self._flexible else self._int16()

    def _skip_tags(self) -> None:
        if self._flexible:
            for _ in range(self._varint()):
                self._varint()
                self._skip(self._varint())

    def _skip(self, size: int) -> None:
        if not 0 <= size <= len(self._view) - self._at:
            msg = f"{size} bytes do not follow at byte {self._at}"
            raise ValueError(msg)
        self._at += size

    def _varint(self) -> int:
        value, shift = 0, 0
        while True:
            byte = self._view[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def _int16(self) -> int:
        (value,) = _INT16.unpack_from(self._view, self._at)
        self._at += _INT16.size
        return int(value)

    def _int32(self) -> int:
        (value,) = _INT32.unpack_from(self._view, self._at)
        self._at += _INT32.size
        return int(value)

    def _int64(self) -> int:
        (value,) = _INT64.unpack_from(self._view, self._at)
        self._at += _INT64.size
        return int(value)
