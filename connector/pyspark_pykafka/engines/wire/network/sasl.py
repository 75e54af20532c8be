"""
SASL authentication: runs a mechanism's exchange with a broker, and maps its errors.
"""

from __future__ import annotations

import base64
import json
import time
from typing import TYPE_CHECKING, cast

from pyspark_pykafka.engines.error_codes import KafkaErrorCode
from pyspark_pykafka.engines.error_mapping import map_error_code
from pyspark_pykafka.errors import AuthenticationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Protocol

    from kafka.net.sasl.oauth import AbstractTokenProvider

    from pyspark_pykafka.engines.wire.protocol.request import KafkaPythonRequest
    from pyspark_pykafka.settings.unsecured_token import UnsecuredToken
    from pyspark_pykafka.settings.wire_config import Address, Sasl

    #: Sends a kafka-python request, and returns its response.
    Send = Callable[[KafkaPythonRequest[object]], object]

    # The parts of kafka-python that are used; it ships no type information.

    class HandshakeResponse(Protocol):
        """
        Whether a listener accepts a mechanism, and which mechanisms it offers.
        """

        error_code: int
        mechanisms: Iterable[str]

    class AuthenticateResponse(Protocol):
        """
        The broker's part of one step of the exchange.
        """

        error_code: int
        error_message: str | None
        auth_bytes: bytes
        session_lifetime_ms: int

    class Mechanism(Protocol):
        """
        The client's part of the exchange.
        """

        def is_done(self) -> bool:
            """
            Return whether the exchange is over.
            """

        def is_authenticated(self) -> bool:
            """
            Return whether the broker has proved its identity, if the mechanism requires it.
            """

        def auth_bytes(self) -> bytes:
            """
            Return the next message to the broker.
            """

        def receive(self, auth_bytes: bytes) -> None:
            """
            Process the broker's message; raises ValueError or LookupError if it is invalid.
            """


_MASK = "********"


class Login:
    """
    The login of one user to one broker.
    """

    def __init__(self, sasl: Sasl, address: Address) -> None:
        self._sasl = sasl
        self._address = address

    def run(self, send: Send, version: int) -> float:
        """
        Log in, and return the session lifetime in seconds; 0 means that it does not expire.

        ``send`` sends a request and returns the response; ``version`` is SaslAuthenticate's. Raises
        :class:`AuthenticationError` if the broker rejects the login or fails to prove that it knows
        the password (SCRAM).
        """
        from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

        handshake = SaslHandshakeRequest(mechanism=self._sasl.mechanism, version=1)
        self._check_handshake(cast("HandshakeResponse", send(handshake)))
        mechanism = self._mechanism()
        lifetime_ms = 0
        while not mechanism.is_done():
            token = mechanism.auth_bytes()
            request = SaslAuthenticateRequest(auth_bytes=token, version=version)
            response = cast("AuthenticateResponse", send(request))
            self._check_response(response)
            lifetime_ms = response.session_lifetime_ms or 0
            self._pass_on(mechanism, response.auth_bytes)
        if not mechanism.is_authenticated():
            raise self._error("the broker's last message does not belong to this mechanism")
        return max(lifetime_ms, 0) / 1000

    def _check_handshake(self, response: HandshakeResponse) -> None:
        if response.error_code == KafkaErrorCode.UNSUPPORTED_SASL_MECHANISM:
            offered = ", ".join(sorted(response.mechanisms)) or "none"
            raise self._error(f"the listener does not offer it; it offers: {offered}")
        if response.error_code == KafkaErrorCode.ILLEGAL_SASL_STATE:
            raise self._error("the listener does not use SASL")
        if response.error_code:
            raise map_error_code(response.error_code, f"logging in at {self._address}")

    def _check_response(self, response: AuthenticateResponse) -> None:
        if response.error_code == KafkaErrorCode.SASL_AUTHENTICATION_FAILED:
            reason = response.error_message or "no reason given"
            if self._sasl.password:
                reason = reason.replace(self._sasl.password, _MASK)
            raise self._error(f"the broker's message: {reason}")
        if response.error_code:
            raise map_error_code(response.error_code, f"logging in at {self._address}")

    def _pass_on(self, mechanism: Mechanism, message: bytes) -> None:
        try:
            mechanism.receive(message)
        except (ValueError, LookupError) as cause:
            # A secret might be guessed from the message, so only the error's class is shown.
            raise self._error(
                "the broker does not prove that it knows the password, "
                f"or its message is out of order ({type(cause).__name__})"
            ) from None

    def _error(self, reason: str) -> AuthenticationError:
        return AuthenticationError(
            f"{self._address}: login with {self._sasl.mechanism} failed: {reason}; check "
            "kafka.security.protocol, kafka.sasl.mechanism and the credentials"
        )

    def _mechanism(self) -> Mechanism:
        from kafka.net.sasl import get_sasl_mechanism

        scram = self._sasl.mechanism.startswith("SCRAM-")
        mechanism: Mechanism = get_sasl_mechanism(self._sasl.mechanism)(
            sasl_mechanism=self._sasl.mechanism,
            sasl_plain_username=_escape_scram_name(self._sasl.username)
            if scram
            else self._sasl.username,
            sasl_plain_password=self._sasl.password,
            sasl_oauth_token_provider=self._sasl.token and _provider(self._sasl.token),
        )
        return mechanism


def offered_mechanisms(send: Send) -> list[str] | None:
    """
    Return the SASL mechanisms that a listener offers, or None if it uses no SASL.

    ``send`` sends a request and returns the response.
    """
    from kafka.protocol.sasl import SaslHandshakeRequest

    request = SaslHandshakeRequest(mechanism="PLAIN", version=1)
    response = cast("HandshakeResponse", send(request))
    answering_codes = {KafkaErrorCode.NONE, KafkaErrorCode.UNSUPPORTED_SASL_MECHANISM}
    return sorted(response.mechanisms) if response.error_code in answering_codes else None


def _escape_scram_name(name: str) -> str:
    # RFC 5802 requires the escapes; kafka-python leaves them to its callers.
    return name.replace("=", "=3D").replace(",", "=2C")


def _provider(token: UnsecuredToken) -> AbstractTokenProvider:
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):
        def token(self) -> str:
            return unsecured_jwt(token, time.time())

        def extensions(self) -> dict[str, str]:
            return dict(token.extensions)

    return Provider()


def unsecured_jwt(token: UnsecuredToken, now: float) -> str:
    """
    Return an unsecured JSON Web Token (RFC 7519, section 6), valid from ``now``, a Unix time.
    """
    claims: dict[str, str | float | list[str]] = {
        token.principal_claim: token.principal,
        "iat": round(now, 3),
        "exp": round(now + token.life_seconds, 3),
    }
    if token.scope:
        claims[token.scope_claim] = list(token.scope)
    return f"{_base64url({'alg': 'none'})}.{_base64url(claims)}."


def _base64url(document: Mapping[str, object]) -> str:
    text = json.dumps(document, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()
