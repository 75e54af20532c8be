"""
One connection to one broker: requests out, answers in, in the same order.
"""

from __future__ import annotations

import math
import select
import struct
import time
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pyspark_pykafka.engines.wire.network.connect import connect
from pyspark_pykafka.engines.wire.network.reachability import REACHABILITY
from pyspark_pykafka.engines.wire.network.throttle import Throttle
from pyspark_pykafka.engines.wire.protocol.api_versions import (
    MAX_VERSION,
    BrokerApiVersions,
    negotiate_versions,
)
from pyspark_pykafka.engines.wire.protocol.frames import (
    Frame,
    FrameBuffer,
    frame_size_error,
    has_flexible_header,
    new_buffer,
    skip_tagged_fields,
)
from pyspark_pykafka.engines.wire.protocol.request import encode_request
from pyspark_pykafka.errors import (
    BrokerUnavailableError,
    PykafkaError,
    TlsError,
)
from pyspark_pykafka.retry import Deadline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_pykafka.engines.wire.network.transport import Transport
    from pyspark_pykafka.engines.wire.protocol.request import Api, Request, ResponseDecoder
    from pyspark_pykafka.settings.wire_config import Address, WireConfig

T = TypeVar("T")

_NUMBER = struct.Struct(">i")
_FETCH = 1

# A login is renewed after this part of its life (KIP-368), but brokers refuse one in a second.
_LIFE_PART = 0.85
_LOGIN_SECONDS = 1.1

# An answer that takes this part of its time or more has been waited for in vain: waits are cut off
# a little early where they are shared.
_SILENT_PART = 0.9

_IN_PLAINTEXT = "; is it a TLS listener? kafka.security.protocol must be the listener's"
_IN_TLS = "; does the listener want a certificate (kafka.ssl.certificate.location)?"
_IN_LOGIN = "; the broker ended it without a word on the login, which it may do when it stops"
_WITHOUT_LOGIN = "; does the listener want a login (kafka.security.protocol=SASL_...)?"


class _Pending(NamedTuple):
    correlation: int
    response: ResponseDecoder
    version: int
    doing: str


class Connection:
    """
    One blocking socket to one broker; requests are answered in order.

    For one borrower at a time. After a failure on the wire it is closed.
    """

    def __init__(self, address: Address, config: WireConfig, transport: Transport) -> None:
        self.address = address
        self._config = config
        self._transport = transport
        self._throttle = Throttle(address)
        self._length = bytearray(_NUMBER.size)
        # Of Fetch responses alone: a login between two of them has memory of its own.
        self._fetched = FrameBuffer()
        self._pending: deque[_Pending] = deque()
        self._correlation = 0
        self._versions = BrokerApiVersions(address, {})
        self._login_due = float("inf")
        self._used = self._answered = self._awaited_since = time.monotonic()

    @classmethod
    def open(cls, address: Address, config: WireConfig, deadline: Deadline) -> Connection:
        """
        Connect, with TLS and a login where the configuration has them, and ask for API versions.
        """
        transport, setup = connect(address, config, deadline)
        connection = cls(address, config, transport)
        try:
            connection._negotiate(setup)
            connection._log_in(setup)
        except BaseException:
            connection.close()
            raise
        if config.sasl is None:
            transport.hint = _WITHOUT_LOGIN
        return connection

    @property
    def in_flight(self) -> int:
        """
        How many requests were sent and are not answered yet.
        """
        return len(self._pending)

    @property
    def throttled_until(self) -> float:
        """
        Until when, on the monotonic clock, :meth:`send` would wait for the broker's quota.
        """
        return self._throttle.until

    @property
    def is_login_due(self) -> bool:
        """
        Whether the login ends soon (KIP-368); :meth:`send` renews it once nothing is in flight.
        """
        return time.monotonic() >= self._login_due

    @property
    def is_usable(self) -> bool:
        """
        Whether it is worth sending: open still, and not idle for longer than the settings allow.

        What the broker has closed in the meantime shows here, where no answer is awaited.
        """
        if self._pending or self._transport.closed:
            return not self._transport.closed
        idle = time.monotonic() - self._used
        return not 0 < self._config.idle_seconds <= idle and self._transport.quiet()

    @property
    def closed(self) -> bool:
        """
        Whether nothing can be sent any more.
        """
        return self._transport.closed

    @property
    def last_response_at(self) -> float:
        """
        When the broker was heard of last, on the monotonic clock.
        """
        return self._answered

    @property
    def has_buffered_input(self) -> bool:
        """
        Whether a part of an answer has been taken from the socket already.
        """
        return self._transport.has_buffered_input

    def fileno(self) -> int:
        """
        Return what the socket can be polled by.
        """
        return self._transport.fileno()

    def version(self, request: Api, max_version: int = MAX_VERSION) -> int:
        """
        Return the highest version of a request that the broker and we know.

        The request is an :class:`ApiSpec`, or a class of kafka-python's.
        """
        return self._versions.latest_usable(request, max_version)

    def supports(self, request: Api) -> bool:
        """
        Return whether the broker and we know a version of a request in common.
        """
        return self._versions.latest_usable_or_none(request) is not None

    def send(self, request: Any, deadline: Deadline) -> None:
        """
        Send a request that has its version set, once the broker's quota lets us.

        Logs in again before, where the broker wants that and no answer is outstanding.
        """
        self._throttle.wait(deadline)
        # Invariant R14 (re-authentication).
        if not self._pending and self.is_login_due:
            self._log_in(deadline)
        self._write(request, deadline)

    def receive(self, deadline: Deadline) -> Any:
        """
        Return the answer to the oldest request in flight.
        """
        frame = self.receive_frame(deadline)
        try:
            response = frame.decode()
        except PykafkaError:
            self.close()
            raise
        self._throttle.record(frame, getattr(response, "throttle_time_ms", 0))
        return response

    def receive_frame(self, deadline: Deadline) -> Frame:
        """
        Return the same undecoded; nothing that is received later is written over it.
        """
        if not self._pending:
            msg = f"no request to {self.address} is waiting for an answer; send one first"
            raise ValueError(msg)
        try:
            frame = self._read(self._pending[0], self._limit(deadline))
        except PykafkaError:
            self.close()
            raise
        self._pending.popleft()
        self._used = self._answered = self._awaited_since = time.monotonic()
        self._transport.hint = ""
        if frame.schema.API_KEY == _FETCH and len(frame.body) >= _NUMBER.size:
            self._throttle.record(frame, *_NUMBER.unpack(frame.body[: _NUMBER.size]))
        return frame

    def request(self, request: Request[T], deadline: Deadline) -> T:
        """
        Send a request, and return its decoded response.
        """
        self.send(request, deadline)
        response: T = self.receive(deadline)
        return response

    def close(self) -> None:
        """
        Close the connection; answers that are under way are lost.
        """
        if self._pending and self._is_silent():
            REACHABILITY.record_silence(self._answered, self._awaited_since)
        self._pending.clear()
        self._transport.close()

    def _is_silent(self) -> bool:
        """
        Whether an answer has taken all its time, and is not here.
        """
        waited = time.monotonic() - self._awaited_since
        if waited < _SILENT_PART * self._config.request_seconds:
            return False
        return self._transport.closed or self._transport.quiet()

    def _negotiate(self, deadline: Deadline) -> None:
        hint = _IN_PLAINTEXT if self._config.tls is None else _IN_TLS
        limit = Deadline.after(deadline.remaining(self._config.api_versions_seconds))
        self._versions = negotiate_versions(
            lambda request: self._ask(request, limit, hint), self.address
        )

    def _log_in(self, deadline: Deadline) -> None:
        if self._config.sasl is None:
            return
        from kafka.protocol.sasl import SaslAuthenticateRequest

        from pyspark_pykafka.engines.wire.network.sasl import Login

        version = self.version(SaslAuthenticateRequest, 2)
        login = Login(self._config.sasl, self.address)
        try:
            lifetime = login.run(lambda request: self._ask(request, deadline, _IN_LOGIN), version)
        except PykafkaError:
            self.close()
            raise
        due = time.monotonic() + max(_LIFE_PART * lifetime, _LOGIN_SECONDS)
        self._login_due = due if lifetime else float("inf")

    def _ask(self, request: Any, deadline: Deadline, hint: str) -> Any:
        self._transport.hint = hint
        self._write(request, deadline)
        return self.receive(deadline)

    def _write(self, request: Any, deadline: Deadline) -> None:
        self._correlation = (self._correlation + 1) & 0x7FFF_FFFF
        sent = encode_request(request, self._correlation, self._config.client_id)
        doing = sent.name.removesuffix("Request")
        self._transport.send(sent.buffers, self._limit(deadline), doing)
        self._used = time.monotonic()
        if sent.expects_response:
            if not self._pending:
                self._awaited_since = self._used
            pending = _Pending(self._correlation, sent.response, sent.version, doing)
            self._pending.append(pending)

    def _read(self, pending: _Pending, limit: Deadline) -> Frame:
        length = memoryview(self._length)
        self._transport.receive_into(length, limit, pending.doing)
        room = self._fetched.reserve if pending.response.API_KEY == _FETCH else new_buffer
        frame = room(self._size(pending))
        self._transport.receive_into(frame, limit, pending.doing)
        (correlation,) = _NUMBER.unpack(frame[: _NUMBER.size])
        if correlation != pending.correlation:
            msg = (
                f"{self.address}: answer {correlation} came for request {pending.correlation} "
                f"({pending.doing}): the connection is out of step, and closed"
            )
            raise BrokerUnavailableError(msg)
        body = frame[_NUMBER.size :]
        if has_flexible_header(pending.response, pending.version):
            body = skip_tagged_fields(body, self.address)
        return Frame(pending.response, pending.version, body)

    def _size(self, pending: _Pending) -> int:
        (size,) = _NUMBER.unpack(self._length)
        largest = self._config.receive_message_max_bytes
        if _NUMBER.size <= size <= largest:
            return int(size)
        if not self._versions.ranges and self._config.tls is None:
            msg = f"{self.address}: the answer is not in Kafka's protocol{_IN_PLAINTEXT}"
            raise TlsError(msg)
        raise frame_size_error(size, largest, self.address, pending.doing)

    def _limit(self, deadline: Deadline) -> Deadline:
        # From when we wait for it on: an answer may long be here, of which we had no need yet.
        return Deadline.after(deadline.remaining(self._config.request_seconds))


def readable(connections: Sequence[Connection], seconds: float) -> list[Connection]:
    """
    Return those of the connections that have something to receive, waiting for the first one.
    """
    ready = [connection for connection in connections if connection.has_buffered_input]
    by_number = {connection.fileno(): connection for connection in connections}
    poll = select.poll()
    for number in by_number:
        poll.register(number, select.POLLIN)
    # Rounded up: 0 would not wait, and the caller would spin through the last millisecond.
    found = poll.poll(0 if ready else math.ceil(seconds * 1000))
    return list(dict.fromkeys([*ready, *(by_number[number] for number, _ in found)]))
