"""
One connection to one broker: API versions, login and throttling around its requests.
"""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING, TypeVar

from pyspark_pykafka.engines.wire.network.channel import Channel
from pyspark_pykafka.engines.wire.network.connect import HandshakeEndedError, connect
from pyspark_pykafka.engines.wire.network.frame_reader import FETCH, PLAINTEXT_HINT
from pyspark_pykafka.engines.wire.network.sasl_session import SaslSession
from pyspark_pykafka.engines.wire.network.throttle import Throttle
from pyspark_pykafka.engines.wire.protocol.api_versions import (
    MAX_VERSION,
    BrokerApiVersions,
    negotiate_versions,
)
from pyspark_pykafka.errors import BrokerUnavailableError, PykafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark_pykafka.engines.wire.network.transport import Transport
    from pyspark_pykafka.engines.wire.network.wire_log import WireLog
    from pyspark_pykafka.engines.wire.protocol.frames import Frame
    from pyspark_pykafka.engines.wire.protocol.request import (
        Api,
        ApiSpec,
        KafkaPythonRequest,
        Request,
        ResponseDecoder,
    )
    from pyspark_pykafka.retry import Deadline
    from pyspark_pykafka.settings.wire_config import Address, WireConfig

T = TypeVar("T")

_INT32 = struct.Struct(">i")

_TLS_HINT = "; does the listener require a client certificate (kafka.ssl.certificate.location)?"
_LOGIN_HINT = "; the broker closed it without answering the login, as it may when it shuts down"
_NO_LOGIN_HINT = "; does the listener require a login (kafka.security.protocol=SASL_...)?"


class Connection:
    """
    A blocking socket to one broker; responses arrive in the order of the requests.

    Only one thread at a time may use it. It is closed after any failure to send, receive or decode.
    """

    def __init__(
        self,
        address: Address,
        config: WireConfig,
        transport: Transport,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.address = address
        self._config = config
        self._transport = transport
        self._throttle = Throttle(address, now)
        self._channel = Channel(address, config, transport, now)
        self._versions = BrokerApiVersions(address, {})
        self._login = SaslSession(address, config.sasl, now)

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self.in_flight} in flight"
        return f"<Connection {self.address} {self._config.protocol}, {state}>"

    @classmethod
    def open(
        cls,
        address: Address,
        config: WireConfig,
        deadline: Deadline,
        now: Callable[[], float] = time.monotonic,
    ) -> Connection:
        """
        Connect, negotiate API versions, and perform TLS and SASL if they are configured.
        """
        started_at = now()
        try:
            transport, setup = connect(address, config, deadline)
        except HandshakeEndedError as ended:
            raise _plaintext_listener_error(address, config) or ended.error from ended
        connection = cls(address, config, transport, now)
        if config.debug:
            connection._channel.log = log = _wire_log(address, config)
            log.connected(config.protocol, now() - started_at)
        try:
            connection._negotiate(setup)
            connection._log_in(setup)
        except BaseException:
            connection.close()
            raise
        if config.sasl is None:
            transport.hint = _NO_LOGIN_HINT
        return connection

    @property
    def in_flight(self) -> int:
        """
        The number of requests that were sent and not answered yet.
        """
        return len(self._channel.in_flight)

    @property
    def throttled_until(self) -> float:
        """
        The monotonic time until which :meth:`send` would wait because of the broker's throttling.
        """
        return self._throttle.until

    @property
    def is_login_due(self) -> bool:
        """
        Whether the login expires soon (KIP-368); :meth:`send` renews it once nothing is in flight.
        """
        return self._login.is_due

    @property
    def is_usable(self) -> bool:
        """
        Whether requests can be sent: the connection is open and has not exceeded the idle timeout.

        With nothing in flight this also notices that the broker has closed the connection.
        """
        return self._channel.is_usable

    @property
    def closed(self) -> bool:
        """
        Whether the connection is closed for good.
        """
        return self._transport.closed

    @property
    def last_response_at(self) -> float:
        """
        The monotonic time of the last response, or of the connection's start.
        """
        return self._channel.last_response_at

    @property
    def has_buffered_input(self) -> bool:
        """
        Whether TLS has already decrypted part of a response; polling the socket does not show it.
        """
        return self._transport.has_buffered_input

    def fileno(self) -> int:
        """
        Return the socket's file descriptor, for polling.
        """
        return self._transport.fileno()

    def version(self, request: Api, max_version: int = MAX_VERSION) -> int:
        """
        Return the highest version of a request that both the broker and this engine support.

        ``request`` is an :class:`ApiSpec` or one of kafka-python's request classes.
        """
        return self._versions.latest_usable(request, max_version)

    @property
    def api_versions(self) -> Mapping[int, tuple[int, int]]:
        """
        The lowest and highest version of each API that the broker supports, by API key.
        """
        return self._versions.ranges

    def supports(self, request: Api) -> bool:
        """
        Return whether the broker and this engine have a version of a request in common.
        """
        return self._versions.latest_usable_or_none(request) is not None

    def send(
        self, request: Request[T] | KafkaPythonRequest[T], deadline: Deadline
    ) -> ResponseDecoder[T]:
        """
        Send a request whose version is set, once the broker's throttle time is over.

        Renews the login first if that is due and nothing is in flight. Returns the decoder of the
        response.
        """
        self._throttle.wait(deadline)
        # Invariant R14 (re-authentication).
        if not self._channel.in_flight and self.is_login_due:
            self._log_in(deadline)
        return self._channel.send(request, deadline)

    def renew_login(self, deadline: Deadline) -> None:
        """
        Log in again once the broker's throttle time is over; nothing may be in flight.
        """
        self._throttle.wait(deadline)
        self._log_in(deadline)

    def receive(self, api: ApiSpec[T], deadline: Deadline) -> T:
        """
        Return the decoded response to the oldest request in flight, which is one of ``api``.
        """
        in_flight = self._channel.in_flight
        if in_flight and in_flight[0].response is not api.response:
            oldest = in_flight[0].action
            msg = f"the oldest request to {self.address} is {oldest}, not {api.name}"
            raise ValueError(msg)
        return self._receive(api.response, deadline)

    def discard_response(self, deadline: Deadline) -> None:
        """
        Receive the response to the oldest request in flight, and use only its throttle time.
        """
        frame = self.receive_frame(deadline)
        self._decode(frame, frame.schema)

    def receive_frame(self, deadline: Deadline) -> Frame:
        """
        Return the response to the oldest request in flight, undecoded.

        Later responses do not overwrite the frame while any view of it exists.
        """
        try:
            frame = self._channel.receive(deadline)
        except BrokerUnavailableError as error:
            raise self._unavailable_error(error) from error
        self._transport.hint = ""
        if frame.schema.API_KEY == FETCH and len(frame.body) >= _INT32.size:
            self._throttle.record(frame, *_INT32.unpack(frame.body[: _INT32.size]))
        return frame

    def request(self, request: Request[T] | KafkaPythonRequest[T], deadline: Deadline) -> T:
        """
        Send a request and return its decoded response; no other request may be in flight.
        """
        return self._receive(self.send(request, deadline), deadline)

    def disable_listener_probe(self) -> None:
        """
        Report a lost connection as such from now on, without probing the listener.
        """
        self._transport.hint = ""

    def close(self) -> None:
        """
        Close the connection; responses to requests in flight are lost.
        """
        self._channel.close()

    def _unavailable_error(self, error: BrokerUnavailableError) -> PykafkaError:
        """
        Return the error for a lost connection; if its first request was lost, probe for the cause.
        """
        # An error without a cause means that the response is invalid; the socket did not fail.
        is_early = self._transport.hint in (_NO_LOGIN_HINT, PLAINTEXT_HINT)
        if not is_early or error.__cause__ is None:
            return error
        # Imported here, since only this error needs it.
        from pyspark_pykafka.engines.wire.network import listener_probe

        if self._transport.hint == PLAINTEXT_HINT:
            return listener_probe.tls_listener_error(self.address, self._config) or error
        login_error = listener_probe.login_required_error(
            self.address, self._config, Connection.open
        )
        return login_error or error

    def _negotiate(self, deadline: Deadline) -> None:
        hint = PLAINTEXT_HINT if self._config.tls is None else _TLS_HINT
        limit = deadline.within(self._config.api_versions_seconds)
        self._versions = negotiate_versions(
            lambda request: self._request(request, limit, hint), self.address
        )
        self._channel.frames.has_kafka_response = bool(self._versions.ranges)

    def _log_in(self, deadline: Deadline) -> None:
        try:
            lifetime = self._login.log_in(
                lambda request: self._request(request, deadline, _LOGIN_HINT), self.version
            )
        except PykafkaError:
            self.close()
            raise
        log = self._channel.log
        if log is not None and self._config.sasl is not None:
            log.logged_in(self._config.sasl.mechanism, lifetime)

    def _request(
        self, request: Request[T] | KafkaPythonRequest[T], deadline: Deadline, hint: str
    ) -> T:
        self._transport.hint = hint
        return self._receive(self._channel.send(request, deadline), deadline)

    def _receive(self, schema: ResponseDecoder[T], deadline: Deadline) -> T:
        """
        Return the decoded response to the oldest request in flight.
        """
        return self._decode(self.receive_frame(deadline), schema)

    def _decode(self, frame: Frame, schema: ResponseDecoder[T]) -> T:
        try:
            response = frame.decode_as(schema)
        except PykafkaError:
            self.close()
            raise
        self._throttle.record(frame, getattr(response, "throttle_time_ms", 0))
        return response


def _plaintext_listener_error(address: Address, config: WireConfig) -> PykafkaError | None:
    # Imported here, since only this error needs it.
    from pyspark_pykafka.engines.wire.network.listener_probe import plaintext_listener_error

    return plaintext_listener_error(address, config, Connection.open)


def _wire_log(address: Address, config: WireConfig) -> WireLog:
    # Imported here, since only debugging needs it.
    from pyspark_pykafka.engines.wire.network.wire_log import WireLog

    return WireLog(address, config.debug)
