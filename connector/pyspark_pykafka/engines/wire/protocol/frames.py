"""
Responses as they come off the wire: one frame each, in memory that is its reader's alone.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark_pykafka.engines.wire.protocol.primitives import Reader
from pyspark_pykafka.engines.wire.records.buffers import is_viewed
from pyspark_pykafka.errors import KafkaClientError

if TYPE_CHECKING:
    from pyspark_pykafka.engines.wire.protocol.request import ResponseDecoder
    from pyspark_pykafka.settings.wire_config import Address

_BAD_MESSAGE = (-199, "_BAD_MSG")
_API_VERSIONS = 18
# The first version of a response's header that may hold tagged fields.
_FLEXIBLE = 1
_USUAL_BYTES = 4 * 1024 * 1024
_SMALL_FRAMES = 8


class Frame(NamedTuple):
    """
    The body of one response, which nobody writes to as long as any view of it is left.

    ``schema`` decodes it: our
    :class:`~pyspark_pykafka.engines.wire.protocol.request.ResponseSchema`, or kafka-python's class.
    """

    schema: ResponseDecoder
    version: int
    body: memoryview

    def decode(self) -> Any:
        """
        Return what the response says, in an object that holds nothing of the buffer.

        Raises :class:`KafkaClientError` for what is no response of this kind.
        """
        try:
            return self.schema.decode(self.body, version=self.version, header=False)
        except (ValueError, LookupError, TypeError, struct.error) as cause:
            msg = f"a broker's answer is no {self.schema.name}: {type(cause).__name__}"
            raise KafkaClientError(msg, *_BAD_MESSAGE, retriable=True) from cause


class FrameBuffer:
    """
    Memory for large frames, which grows with them, and shrinks when most are small.

    It is used again, since the page faults of new memory cost more than reading what is in it, but
    only once no view of the frame before is left. That is Python's word (an object whose memory is
    exported cannot be resized), not the readers': a frame that is still read keeps its memory, and
    the next one gets another.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._small = 0

    def reserve(self, size: int) -> memoryview:
        """
        Return room for a frame, which nobody else looks at.
        """
        self._small = self._small + 1 if 4 * size < len(self._buffer) else 0
        shrinks = self._small > _SMALL_FRAMES and len(self._buffer) > _USUAL_BYTES
        if size > len(self._buffer) or shrinks or is_viewed(self._buffer):
            # The old one goes first, or both would count at once.
            self._buffer = bytearray()
            self._buffer = bytearray(size)
            self._small = 0
        return memoryview(self._buffer)[:size]


def new_buffer(size: int) -> memoryview:
    """
    Return room for one frame in memory of its own.
    """
    return memoryview(bytearray(size))


def has_flexible_header(schema: ResponseDecoder, version: int) -> bool:
    """
    Return whether tagged fields follow the correlation id; a broker answers ApiVersions without.
    """
    return schema.API_KEY != _API_VERSIONS and bool(schema.flexible_version_q(version))


def skip_tagged_fields(view: memoryview, address: Address) -> memoryview:
    """
    Return what follows the tagged fields that a view begins with.
    """
    reader = Reader(view, _FLEXIBLE, _FLEXIBLE)
    try:
        reader.skip_tags()
    except (IndexError, ValueError) as cause:
        msg = f"{address}: the header of an answer does not end; is it a Kafka broker?"
        raise KafkaClientError(msg, *_BAD_MESSAGE, retriable=True) from cause
    return view[reader.at :]


def frame_size_error(size: int, largest: int, address: Address, doing: str) -> KafkaClientError:
    """
    Return the error for a frame that says it has more bytes than we may take, or too few.
    """
    msg = (
        f"{address}: {doing}: the answer has {size} bytes, and kafka.receive.message.max.bytes "
        f"lets it have {largest}; raise that, or lower kafka.fetch.max.bytes"
    )
    if size <= largest:
        msg = f"{address}: {doing}: the answer has {size} bytes; is it a Kafka broker?"
    return KafkaClientError(msg, *_BAD_MESSAGE, retriable=False)
