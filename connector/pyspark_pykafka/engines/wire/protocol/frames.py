"""
Response frames, and their memory, which no later response overwrites while it is in use.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from pyspark_pykafka.engines.error_codes import BAD_MESSAGE
from pyspark_pykafka.engines.wire.protocol.primitives import Reader
from pyspark_pykafka.engines.wire.records.buffers import is_viewed
from pyspark_pykafka.errors import KafkaClientError

if TYPE_CHECKING:
    from pyspark_pykafka.engines.wire.protocol.request import ResponseDecoder
    from pyspark_pykafka.settings.wire_config import Address

T = TypeVar("T")

_API_VERSIONS = 18
# The first version of a response's header that may hold tagged fields.
_FLEXIBLE = 1
_INITIAL_BYTES = 4 * 1024 * 1024
_MAX_SMALL_FRAMES = 8


class Frame(NamedTuple):
    """
    The body of one response, which is not overwritten while a view of it exists.

    ``schema`` decodes it: our
    :class:`~pyspark_pykafka.engines.wire.protocol.request.ResponseSchema`, or kafka-python's class.
    """

    schema: ResponseDecoder[object]
    version: int
    body: memoryview

    def decode(self) -> object:
        """
        Return the decoded response, as :meth:`decode_as` does.
        """
        return self.decode_as(self.schema)

    def decode_as(self, schema: ResponseDecoder[T]) -> T:
        """
        Return the response that ``schema`` decodes, which keeps no view of the body.

        Raises :class:`KafkaClientError` if the body is malformed.
        """
        try:
            return schema.decode(self.body, version=self.version, header=False)
        except (ValueError, LookupError, TypeError, struct.error) as cause:
            msg = f"a broker sent no valid {schema.name}: {type(cause).__name__}"
            raise KafkaClientError(msg, *BAD_MESSAGE, retriable=True) from cause


class FrameBuffer:
    """
    Memory for large frames, which grows on demand and shrinks after several small frames in a row.

    It is reused, since the page faults of new memory cost more than receiving a frame, but only
    once no view of the previous frame exists. Readers need not release a frame, since
    :func:`is_viewed` detects whether views of it exist. A frame still in use keeps its memory, and
    the next frame gets new memory.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._small_frames = 0

    def reserve(self, size: int) -> memoryview:
        """
        Return memory for a frame of ``size`` bytes that no other view refers to.
        """
        self._small_frames = self._small_frames + 1 if 4 * size < len(self._buffer) else 0
        shrinks = self._small_frames > _MAX_SMALL_FRAMES and len(self._buffer) > _INITIAL_BYTES
        if size > len(self._buffer) or shrinks or is_viewed(self._buffer):
            # Released first: otherwise both buffers would be allocated at once.
            self._buffer = bytearray()
            self._buffer = bytearray(size)
            self._small_frames = 0
        return memoryview(self._buffer)[:size]


def new_buffer(size: int) -> memoryview:
    """
    Return new memory, which is used for one frame only.
    """
    return memoryview(bytearray(size))


def has_flexible_header(schema: ResponseDecoder[object], version: int) -> bool:
    """
    Return whether tagged fields follow the correlation id; ApiVersions never has them (KIP-511).
    """
    return schema.API_KEY != _API_VERSIONS and bool(schema.flexible_version_q(version))


def skip_tagged_fields(view: memoryview, address: Address) -> memoryview:
    """
    Return the view after its leading tagged fields.
    """
    reader = Reader(view, _FLEXIBLE, _FLEXIBLE)
    try:
        reader.skip_tags()
    except (IndexError, ValueError) as cause:
        msg = f"{address}: the header of a response does not end; is this a Kafka broker?"
        raise KafkaClientError(msg, *BAD_MESSAGE, retriable=True) from cause
    return view[reader.position :]


def frame_size_error(size: int, max_bytes: int, address: Address, action: str) -> KafkaClientError:
    """
    Return the error for a frame whose length field is too large, or impossible.
    """
    msg = (
        f"{address}: {action}: the response has {size} bytes, more than the {max_bytes} of "
        "kafka.receive.message.max.bytes; raise it, or lower kafka.fetch.max.bytes"
    )
    if size <= max_bytes:
        msg = f"{address}: {action}: the response has {size} bytes; is this a Kafka broker?"
    return KafkaClientError(msg, *BAD_MESSAGE, retriable=False)
