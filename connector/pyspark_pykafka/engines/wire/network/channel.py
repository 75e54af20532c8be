"""
The requests and responses on one socket: each response is matched to the oldest request in flight.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TypeVar

from pyspark_pykafka.engines.wire.network.frame_reader import FrameReader, InFlightRequest
from pyspark_pykafka.engines.wire.network.reachability import REACHABILITY
from pyspark_pykafka.engines.wire.protocol.request import encode_request
from pyspark_pykafka.errors import PykafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_pykafka.engines.wire.network.transport import Transport
    from pyspark_pykafka.engines.wire.network.wire_log import WireLog
    from pyspark_pykafka.engines.wire.protocol.frames import Frame
    from pyspark_pykafka.engines.wire.protocol.request import (
        KafkaPythonRequest,
        Request,
        ResponseDecoder,
    )
    from pyspark_pykafka.retry import Deadline
    from pyspark_pykafka.settings.wire_config import Address, WireConfig

T = TypeVar("T")

# A connection counts as silent after this share of the request timeout without a response: a wait
# that is shared with other connections ends a little before the timeout.
_SILENT_SHARE = 0.9


class Channel:
    """
    Sends requests over one socket and receives their responses, without decoding them.

    It is closed after any failure to send or receive.
    """

    def __init__(
        self, address: Address, config: WireConfig, transport: Transport, now: Callable[[], float]
    ) -> None:
        self._address = address
        self._config = config
        self._transport = transport
        self._now = now
        #: The debug log, if ``kafka.debug`` is set.
        self.log: WireLog | None = None
        self.frames = FrameReader(address, config, transport)
        self.in_flight: deque[InFlightRequest] = deque()
        self._correlation_id = 0
        #: The monotonic time of the last response, or of the channel's start.
        self.last_response_at = now()
        self._last_used_at = self._waiting_since = self.last_response_at

    def __repr__(self) -> str:
        state = "closed" if self._transport.closed else f"{len(self.in_flight)} in flight"
        return f"<Channel {self._address} {self._config.protocol}, {state}>"

    @property
    def is_usable(self) -> bool:
        """
        Whether requests can be sent: it is open and has not exceeded the idle timeout.

        With nothing in flight this also notices that the broker has closed the connection.
        """
        if self.in_flight or self._transport.closed:
            return not self._transport.closed
        idle = self._now() - self._last_used_at
        return not 0 < self._config.idle_seconds <= idle and self._transport.has_no_input()

    def send(
        self, request: Request[T] | KafkaPythonRequest[T], deadline: Deadline
    ) -> ResponseDecoder[T]:
        """
        Send a request whose version is set, and return the decoder of its response.
        """
        self._correlation_id = (self._correlation_id + 1) & 0x7FFF_FFFF
        sent = encode_request(request, self._correlation_id, self._config.client_id)
        action = sent.name.removesuffix("Request")
        self._transport.send(sent.buffers, self._limit(deadline), action)
        self._last_used_at = sent_at = self._now()
        if sent.expects_response:
            if not self.in_flight:
                self._waiting_since = sent_at
            self.in_flight.append(
                InFlightRequest(self._correlation_id, sent.response, sent.version, action, sent_at)
            )
        if self.log is not None:
            self.log.sent(action, sent.version, self._correlation_id, sent.buffers)
        return sent.response

    def receive(self, deadline: Deadline) -> Frame:
        """
        Return the response to the oldest request in flight.

        Later responses do not overwrite the frame while any view of it exists.
        """
        if not self.in_flight:
            msg = f"no request to {self._address} is in flight; send a request first"
            raise ValueError(msg)
        try:
            frame = self.frames.read(self.in_flight[0], self._limit(deadline))
        except PykafkaError:
            self.close()
            raise
        request = self.in_flight.popleft()
        self._last_used_at = self.last_response_at = self._waiting_since = self._now()
        if self.log is not None:
            seconds = self.last_response_at - request.sent_at
            log, size = self.log, self.frames.last_size
            log.received(request.action, request.version, request.correlation_id, size, seconds)
        return frame

    def close(self) -> None:
        """
        Close the socket; responses to requests in flight are lost.
        """
        if self.in_flight and self._is_silent():
            REACHABILITY.record_silence(self.last_response_at, self._waiting_since)
        if self.log is not None:
            self.log.closed(len(self.in_flight))
        self.in_flight.clear()
        self._transport.close()

    def _is_silent(self) -> bool:
        """
        Whether nothing has arrived for nearly the whole request timeout.
        """
        silent_seconds = self._now() - self._waiting_since
        if silent_seconds < _SILENT_SHARE * self._config.request_seconds:
            return False
        return self._transport.closed or self._transport.has_no_input()

    def _limit(self, deadline: Deadline) -> Deadline:
        # The timeout starts when we begin to wait, not when we sent: the response may already be in
        # the socket buffer.
        return deadline.within(self._config.request_seconds)
