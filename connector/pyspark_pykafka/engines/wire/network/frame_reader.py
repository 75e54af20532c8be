"""
Reads the frames of responses from a connection, and checks which request each one answers.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from pyspark_pykafka.engines.wire.protocol.frames import (
    Frame,
    FrameBuffer,
    frame_size_error,
    has_flexible_header,
    new_buffer,
    skip_tagged_fields,
)
from pyspark_pykafka.errors import (
    BrokerUnavailableError,
    SlowResponseError,
    TimeoutExceededError,
    TlsError,
)

if TYPE_CHECKING:
    from pyspark_pykafka.engines.wire.network.transport import Transport
    from pyspark_pykafka.engines.wire.protocol.request import ResponseDecoder
    from pyspark_pykafka.retry import Deadline
    from pyspark_pykafka.settings.wire_config import Address, WireConfig

_INT32 = struct.Struct(">i")
FETCH = 1

PLAINTEXT_HINT = "; is it a TLS listener? kafka.security.protocol must match the listener"


class InFlightRequest(NamedTuple):
    """
    A request that has been sent, but not answered yet; ``sent_at`` is a monotonic time in seconds.
    """

    correlation_id: int
    response: ResponseDecoder[object]
    version: int
    action: str
    sent_at: float


class FrameReader:
    """
    Reads one frame after another, and checks the correlation id of each.
    """

    def __init__(self, address: Address, config: WireConfig, transport: Transport) -> None:
        self._address = address
        self._config = config
        self._transport = transport
        self._size_prefix = bytearray(_INT32.size)
        # For Fetch responses only: the response to a login must not overwrite the last Fetch frame.
        self._fetch_buffer = FrameBuffer()
        #: Whether the broker has answered in Kafka's protocol.
        self.has_kafka_response = False

    @property
    def last_size(self) -> int:
        """
        The size of the last frame in bytes, with its size prefix.
        """
        (size,) = _INT32.unpack(self._size_prefix)
        return int(size) + _INT32.size

    def read(self, request: InFlightRequest, limit: Deadline) -> Frame:
        """
        Return the response to a request, without its header.

        A frame of a Fetch response is not overwritten while any view of it exists.

        Raises :class:`SlowResponseError` if the body is not complete before ``limit``,
        :class:`TlsError` if a connection without TLS gets bytes that are not Kafka's protocol,
        :class:`BrokerUnavailableError` if the response answers another request, and
        :class:`KafkaClientError` if its size is not acceptable.
        """
        self._transport.receive_into(memoryview(self._size_prefix), limit, request.action)
        is_fetch = request.response.API_KEY == FETCH
        reserve = self._fetch_buffer.reserve if is_fetch else new_buffer
        frame = reserve(self._size(request))
        try:
            self._transport.receive_into(frame, limit, request.action)
        except TimeoutExceededError as error:
            msg = (
                f"{self._address}: {request.action} timed out before all {len(frame)} bytes of the "
                "response had arrived; is the network slow?"
            )
            raise SlowResponseError(msg) from error
        (correlation_id,) = _INT32.unpack(frame[: _INT32.size])
        if correlation_id != request.correlation_id:
            msg = (
                f"{self._address}: response {correlation_id} came for request "
                f"{request.correlation_id} ({request.action}): the connection is out of sync, so "
                "it was closed"
            )
            raise BrokerUnavailableError(msg)
        body = frame[_INT32.size :]
        if has_flexible_header(request.response, request.version):
            body = skip_tagged_fields(body, self._address)
        return Frame(request.response, request.version, body)

    def _size(self, request: InFlightRequest) -> int:
        (size,) = _INT32.unpack(self._size_prefix)
        max_size = self._config.receive_message_max_bytes
        if _INT32.size <= size <= max_size:
            return int(size)
        if not self.has_kafka_response and self._config.tls is None:
            msg = f"{self._address}: the response is not in Kafka's protocol{PLAINTEXT_HINT}"
            raise TlsError(msg)
        raise frame_size_error(size, max_size, self._address, request.action)
