"""
The one place where the Kafka client's errors become the connector's.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from pyspark_pykafka.client.codes import MEANINGS, Meaning
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
    from collections.abc import Iterator

    from confluent_kafka import KafkaError

_CLASSES: dict[Meaning, tuple[type[PykafkaError], str]] = {
    Meaning.UNAVAILABLE: (
        BrokerUnavailableError,
        "are the brokers of kafka.bootstrap.servers up and reachable?",
    ),
    Meaning.TIMEOUT: (TimeoutExceededError, "are the brokers up, and not overloaded?"),
    Meaning.AUTHENTICATION: (
        AuthenticationError,
        "check kafka.security.protocol, kafka.sasl.mechanism and the credentials",
    ),
    Meaning.AUTHORIZATION: (AuthorizationError, "ask for the permission (ACL) on the broker"),
    Meaning.TLS: (
        TlsError,
        "check kafka.ssl.ca.location, the broker's certificate, and that it is a TLS listener",
    ),
    Meaning.UNKNOWN_TOPIC: (UnknownTopicError, "does the topic exist, with that partition?"),
}

# librdkafka has no error code for a bad configuration, only these words.
_CONFIGURATION = re.compile(
    r"[Cc]onfiguration property|Failed to create (?:consumer|producer|admin)"
)

# A connection that ends amid a handshake may be a broker going down, or a listener of another kind.
_CUT_OFF = re.compile(r"Disconnected|[Tt]ransport failure|reset by peer|timed out|Timed out")
_CUTS_ALLOWED = 2

_FINAL = frozenset({Meaning.AUTHENTICATION, Meaning.AUTHORIZATION, Meaning.TLS})

# librdkafka looks up the coordinator of any group id; reading assigned partitions needs no group.
_HARMLESS = frozenset({"GROUP_AUTHORIZATION_FAILED"})


def map_kafka_error(error: KafkaError, doing: str) -> PykafkaError:
    """
    Return the connector's error; ``doing`` says what was being done, as "reading t-0".
    """
    name = error.name()
    meaning = MEANINGS.get(name, Meaning.RETRIABLE if error.retriable() else Meaning.OTHER)
    said = f"{doing}: {error.str()} ({name})"
    if error.fatal():
        return KafkaClientError(said, error.code(), name, retriable=False)
    if meaning is Meaning.DATA_LOSS:
        return DataLossError("KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE", said)
    if name == "_INVALID_ARG" and _CONFIGURATION.search(error.str()):
        return OptionsError((said,))
    if meaning in _CLASSES:
        found, hint = _CLASSES[meaning]
        return found(f"{said}; {hint}")
    retriable = meaning is Meaning.RETRIABLE or error.retriable()
    return KafkaClientError(said, error.code(), name, retriable=retriable)


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
    raise KafkaClientError(msg, -1, "UNKNOWN", retriable=False) from cause


class FatalErrors:
    """
    Remembers errors of a client's background threads that no call would ever return.

    librdkafka tries to log in for ever and tells only its error callback; give it :meth:`note`.
    """

    def __init__(self) -> None:
        self._first: KafkaError | None = None
        self._cut_off = 0

    def note(self, error: KafkaError) -> None:
        """
        Keep the error if it is final; called by librdkafka while the client is polled.
        """
        if self._first is None and self._is_final(error):
            self._first = error

    def raise_any(self, doing: str) -> None:
        """
        Raise what was noted, once: whoever tries again afterwards deserves a fresh answer.
        """
        if self._first is None:
            return
        error, self._first, self._cut_off = self._first, None, 0
        raise map_kafka_error(error, doing)

    def _is_final(self, error: KafkaError) -> bool:
        if error.fatal():
            return True
        if MEANINGS.get(error.name()) not in _FINAL or error.name() in _HARMLESS:
            return False
        if not _CUT_OFF.search(error.str()):
            return True
        self._cut_off += 1
        return self._cut_off > _CUTS_ALLOWED
