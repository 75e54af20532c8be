"""
Logging in: the mechanism's messages to and fro, and what the broker says to them.
"""

from __future__ import annotations

import base64
import json
import time
from typing import TYPE_CHECKING, Any

from pyspark_pykafka.engines.error_mapping import map_error_code
from pyspark_pykafka.errors import AuthenticationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_pykafka.settings.unsecured_token import UnsecuredToken
    from pyspark_pykafka.settings.wire_config import Address, Sasl

_UNSUPPORTED_MECHANISM, _ILLEGAL_STATE, _REFUSED = 33, 34, 58
_MASK = "********"


class Login:
    """
    One user's way to prove who it is, to one broker.
    """

    def __init__(self, sasl: Sasl, address: Address) -> None:
        self._sasl = sasl
        self._address = address

    def run(self, ask: Callable[[Any], Any], version: int) -> float:
        """
        Log in, and return for how many seconds that holds; 0 is for ever.

        ``ask`` sends a request and returns the answer, ``version`` is that of SaslAuthenticate.
        Raises :class:`AuthenticationError` when the broker refuses, or cannot prove itself.
        """
        from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

        self._check_handshake(ask(SaslHandshakeRequest(mechanism=self._sasl.mechanism, version=1)))
        mechanism = self._mechanism()
        lifetime = 0
        while not mechanism.is_done():
            token = mechanism.auth_bytes()
            answer = ask(SaslAuthenticateRequest(auth_bytes=token, version=version))
            self._check_answer(answer)
            lifetime = answer.session_lifetime_ms or 0
            self._hand_over(mechanism, answer.auth_bytes)
        if not mechanism.is_authenticated():
            raise self._refusal("the broker's last message is not the mechanism's")
        return max(lifetime, 0) / 1000

    def _check_handshake(self, answer: Any) -> None:
        if answer.error_code == _UNSUPPORTED_MECHANISM:
            offered = ", ".join(sorted(answer.mechanisms)) or "none"
            raise self._refusal(f"the listener does not offer it; it offers: {offered}")
        if answer.error_code == _ILLEGAL_STATE:
            raise self._refusal("the listener is one without SASL")
        if answer.error_code:
            raise map_error_code(answer.error_code, f"logging in at {self._address}")

    def _check_answer(self, answer: Any) -> None:
        if answer.error_code == _REFUSED:
            said = answer.error_message or "no reason given"
            if self._sasl.password:
                said = said.replace(self._sasl.password, _MASK)
            raise self._refusal(f"the broker says: {said}")
        if answer.error_code:
            raise map_error_code(answer.error_code, f"logging in at {self._address}")

    def _hand_over(self, mechanism: Any, message: bytes) -> None:
        try:
            mechanism.receive(message)
        except (ValueError, LookupError) as cause:
            # The message may hold what a secret can be guessed from, so only its kind is told.
            raise self._refusal(
                "the broker does not prove that it knows the password, "
                f"or answers out of turn ({type(cause).__name__})"
            ) from None

    def _refusal(self, reason: str) -> AuthenticationError:
        return AuthenticationError(
            f"{self._address}: no login with {self._sasl.mechanism}: {reason}; check "
            "kafka.security.protocol, kafka.sasl.mechanism and the credentials"
        )

    def _mechanism(self) -> Any:
        from kafka.net.sasl import get_sasl_mechanism

        scram = self._sasl.mechanism.startswith("SCRAM-")
        return get_sasl_mechanism(self._sasl.mechanism)(
            sasl_mechanism=self._sasl.mechanism,
            sasl_plain_username=_scram_name(self._sasl.username) if scram else self._sasl.username,
            sasl_plain_password=self._sasl.password,
            sasl_oauth_token_provider=self._sasl.token and _provider(self._sasl.token),
        )


def _scram_name(name: str) -> str:
    # RFC 5802's way to write a name; kafka-python leaves it to its callers.
    return name.replace("=", "=3D").replace(",", "=2C")


def _provider(token: UnsecuredToken) -> Any:
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):
        def token(self) -> str:
            return unsecured_jwt(token, time.time())

        def extensions(self) -> dict[str, str]:
            return dict(token.extensions)

    return Provider()


def unsecured_jwt(token: UnsecuredToken, now: float) -> str:
    """
    Return the token as it is sent: a JSON Web Token without a signature (RFC 7519, section 6).
    """
    claims: dict[str, Any] = {
        token.principal_claim: token.principal,
        "iat": round(now, 3),
        "exp": round(now + token.life_seconds, 3),
    }
    if token.scope:
        claims[token.scope_claim] = list(token.scope)
    return f"{_encoded({'alg': 'none'})}.{_encoded(claims)}."


def _encoded(document: dict[str, Any]) -> str:
    text = json.dumps(document, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()
