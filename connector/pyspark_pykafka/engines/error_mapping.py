"""
The one place where the Kafka client's errors become the connector's.
"""

from __future__ import annotations

import re
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from pyspark_pykafka.engines.error_codes import (
    ERROR_CLASSES,
    PROTOCOL_NAMES,
    ErrorClass,
    KafkaErrorCode,
)
from pyspark_pykafka.errors import (
    AuthenticationError,
    AuthorizationError,
    BrokerUnavailableError,
    DataLossError,
    KafkaClientError,
    OptionsError,
    PykafkaError,
    TimeoutExceededError,
    TlsError,
    UnknownTopicError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from confluent_kafka import KafkaError

_CLASSES: dict[ErrorClass, tuple[type[PykafkaError], str]] = {
    ErrorClass.UNAVAILABLE: (
        BrokerUnavailableError,
        "are the brokers of kafka.bootstrap.servers up and reachable?",
    ),
    ErrorClass.TIMEOUT: (TimeoutExceededError, "are the brokers up, and not overloaded?"),
    ErrorClass.AUTHENTICATION: (
        AuthenticationError,
        "check kafka.security.protocol, kafka.sasl.mechanism and the credentials",
    ),
    ErrorClass.AUTHORIZATION: (AuthorizationError, "ask for the permission (ACL) on the broker"),
    ErrorClass.TLS: (
        TlsError,
        "check kafka.ssl.ca.location, the broker's certificate, and that it is a TLS listener",
    ),
    ErrorClass.UNKNOWN_TOPIC: (UnknownTopicError, "does the topic exist, with that partition?"),
}

# librdkafka has no error code for a bad configuration, only these words.
_CONFIGURATION = re.compile(
    r"[Cc]onfiguration property|Failed to create (?:consumer|producer|admin)"
)

# Some failures of a handshake come as failures of the transport, told apart by these words only.
_UNTRUSTED = re.compile(r"certificate verify failed")

# A connection that ends amid a handshake may be a broker going down, or a listener of another kind;
# so often in a row, with no longer pause than this, it is the latter.
_CUT_OFF = re.compile(
    r"handshake failed.*(?:Disconnected|[Tt]ransport failure|reset by peer|[Tt]imed out)", re.DOTALL
)
_CUTS_ALLOWED = 4
_CUTS_APART_SECONDS = 30.0

_FINAL = frozenset({ErrorClass.AUTHENTICATION, ErrorClass.AUTHORIZATION, ErrorClass.TLS})

# librdkafka looks up the coordinator of any group id; reading assigned partitions needs no group.
_HARMLESS = frozenset({"GROUP_AUTHORIZATION_FAILED"})


def map_kafka_error(error: KafkaError, doing: str) -> PykafkaError:
    """
    Return the connector's error; ``doing`` says what was being done, as "reading t-0".
    """
    return _map(error, _meaning(error), doing)


def _meaning(error: KafkaError) -> ErrorClass:
    if _UNTRUSTED.search(error.str()):
        return ErrorClass.TLS
    unknown = ErrorClass.RETRIABLE if error.retriable() else ErrorClass.OTHER
    return ERROR_CLASSES.get(error.name(), unknown)


def map_error_code(code: int, doing: str) -> PykafkaError:
    """
    Return the connector's error for a code that a broker answered with, which is not 0.
    """
    name = PROTOCOL_NAMES.get(code, f"ERROR_{code}")
    meaning = ERROR_CLASSES.get(name, ErrorClass.OTHER)
    words = name.lower().replace("_", " ")
    return _named(f"{doing}: the broker says: {words} ({name})", code, name, meaning)


def _map(error: KafkaError, meaning: ErrorClass, doing: str) -> PykafkaError:
    name = error.name()
    said = f"{doing}: {error.str()} ({name})"
    if error.fatal():
        return KafkaClientError(said, error.code(), name, retriable=False)
    if name == "_INVALID_ARG" and _CONFIGURATION.search(error.str()):
        return OptionsError((said,))
    if meaning is ErrorClass.OTHER and error.retriable():
        meaning = ErrorClass.RETRIABLE
    return _named(said, error.code(), name, meaning)


def _named(said: str, code: int, name: str, meaning: ErrorClass) -> PykafkaError:
    if meaning is ErrorClass.DATA_LOSS:
        return DataLossError("KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE", said)
    if meaning in _CLASSES:
        found, hint = _CLASSES[meaning]
        return found(f"{said}; {hint}")
    return KafkaClientError(said, code, name, retriable=meaning is ErrorClass.RETRIABLE)


@contextmanager
def translating_errors(doing: str) -> Iterator[None]:
    """
    Turn a ``KafkaException`` of the block into the connector's error; all others pass.
    """
    # Imported here, so that parsing and planning start without loading the client.
    from confluent_kafka import KafkaException

    try:
        yield
    except KafkaException as cause:
        _raise(cause, doing)


def _raise(cause: Exception, doing: str) -> NoReturn:
    from confluent_kafka import KafkaError

    error = cause.args[0] if cause.args else None
    if isinstance(error, KafkaError):
        raise map_kafka_error(error, doing) from cause
    msg = f"{doing}: {cause}"
    raise KafkaClientError(
        msg, KafkaErrorCode.UNKNOWN_SERVER_ERROR.value, "UNKNOWN", retriable=False
    ) from cause


class FatalErrors:
    """
    Remembers errors of a client's background threads that no call would ever return.

    librdkafka tries to log in for ever and tells only its error callback; give it :meth:`record`.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._first: tuple[KafkaError, ErrorClass] | None = None
        self._cuts = 0
        self._last_cut = 0.0

    # Invariant R5 (error callback).
    def record(self, error: KafkaError) -> None:
        """
        Keep the error if it is final; called by librdkafka while the client is polled.
        """
        if self._first is not None:
            return
        if _CUT_OFF.search(error.str()):
            self._record_disconnect(error)
        elif error.fatal() or (_meaning(error) in _FINAL and error.name() not in _HARMLESS):
            self._first = (error, _meaning(error))

    def raise_pending(self, doing: str) -> None:
        """
        Raise what was noted, once: whoever tries again afterwards deserves a fresh answer.
        """
        if self._first is None:
            return
        (error, meaning), self._first, self._cuts = self._first, None, 0
        raise _map(error, meaning, doing)

    def _record_disconnect(self, error: KafkaError) -> None:
        pause = self._now() - self._last_cut
        self._cuts = self._cuts + 1 if pause < _CUTS_APART_SECONDS else 1
        self._last_cut = self._now()
        if self._cuts > _CUTS_ALLOWED:
            tls = "SSL handshake" in error.str()
            self._first = (error, ErrorClass.TLS if tls else ErrorClass.AUTHENTICATION)
