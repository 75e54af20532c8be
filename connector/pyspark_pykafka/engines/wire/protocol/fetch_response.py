"""
Decodes a Fetch response for one partition without copying its records.

kafka-python's decoder copies the records, which took a quarter of the CPU time of a whole read.
Here they stay a view of the connection's buffer.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from pyspark_pykafka.engines.error_codes import BAD_MESSAGE
from pyspark_pykafka.engines.wire.protocol.primitives import Reader
from pyspark_pykafka.errors import KafkaClientError

if TYPE_CHECKING:
    from pyspark_pykafka.engines.wire.protocol.frames import Frame

# The first version with each field (Kafka's FetchResponse.json).
_LOG_START = 5
_SESSIONS = 7
_PREFERRED_REPLICA = 11
#: The first version with topic ids instead of topic names (KIP-516).
TOPIC_IDS = 13

#: Older versions have neither transactions nor record batches (KIP-98).
MIN_FETCH_VERSION = 4
#: The first flexible version.
FLEXIBLE_FETCH_VERSION = 12

_UUID_BYTES = 16


class FetchResponse(NamedTuple):
    """
    A Fetch response for one partition.

    ``error_code`` is the partition's, or that of the whole response. ``records`` is a view of the
    frame, whose memory is reused once no view exists. ``aborted_transactions`` holds pairs of
    (first offset, producer id). ``partition_index`` is -1 if the response names no partition: the
    whole response failed, or it is only throttled.
    """

    throttle_time_ms: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    aborted_transactions: tuple[tuple[int, int], ...]
    preferred_read_replica: int
    records: memoryview
    partition_index: int = -1

    @property
    def is_only_throttled(self) -> bool:
        """
        Whether a quota is exceeded: then the response has only a throttle time (KIP-219).
        """
        return self.partition_index == -1 and not self.error_code


def read_fetch_response(frame: Frame) -> FetchResponse:
    """
    Return the decoded response of a frame.

    Raises :class:`KafkaClientError` if the frame is not a valid Fetch response for one partition.
    """
    try:
        return read_fetch_body(frame.body, frame.version)
    except (IndexError, ValueError, struct.error) as cause:
        msg = f"a broker sent no valid FetchResponse for one partition: {cause}"
        raise KafkaClientError(msg, *BAD_MESSAGE, retriable=True) from cause


def read_fetch_body(body: memoryview, version: int) -> FetchResponse:
    """
    Return the decoded body of a response; raises the errors of :class:`Reader`.
    """
    return _SingleReader(body, version).response()


class PartitionReader(Reader):
    """
    Reads the parts of a Fetch response; records are views of its body.
    """

    __slots__ = ("_body",)

    def __init__(self, body: memoryview, version: int) -> None:
        super().__init__(body, version, FLEXIBLE_FETCH_VERSION)
        self._body = body

    def top_level_fields(self) -> tuple[int, int]:
        """
        Return the throttle time, and the error code of the whole response.
        """
        throttle = self.int32()
        if self._version < _SESSIONS:
            return throttle, 0
        error = self.int16()
        self.int32()
        return throttle, error

    def partition(self, throttle: int) -> FetchResponse:
        """
        Return the response for one partition.
        """
        partition = self.int32()
        error = self.int16()
        high_watermark, last_stable = self.int64(), self.int64()
        if self._version >= _LOG_START:
            self.int64()
        aborted = tuple(self._aborted_transaction() for _ in range(max(self.count(), 0)))
        replica = self.int32() if self._version >= _PREFERRED_REPLICA else -1
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

    def _aborted_transaction(self) -> tuple[int, int]:
        producer_id, first_offset = self.int64(), self.int64()
        self.skip_tags()
        return first_offset, producer_id

    def _records(self) -> memoryview:
        size = max(self.varint() - 1 if self._flexible else self.int32(), 0)
        start = self._position
        self.skip(size)
        return self._body[start : start + size]


class _SingleReader(PartitionReader):
    __slots__ = ()

    def response(self) -> FetchResponse:
        throttle, error = self.top_level_fields()
        # A response that failed as a whole, or is throttled, need not name a partition.
        topics = 0 if error else self.count()
        if error or (throttle > 0 and topics == 0):
            return FetchResponse(throttle, error, -1, -1, (), -1, self._body[:0])
        self.check_single("topics", topics)
        self.skip(_UUID_BYTES if self._version >= TOPIC_IDS else self.string_size())
        self.expect_single("partitions")
        return self.partition(throttle)
