"""
Maps errors of librdkafka and error codes of brokers to the connector's errors.
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
    with_advice,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from confluent_kafka import KafkaError

#: What to do if no broker answers.
UNREACHABLE_ADVICE = (
    "kafka.bootstrap.servers must name brokers that are up and that this machine can reach; start "
    "them, or correct the addresses, and check with `pykafka doctor`"
)

_CLASSES: dict[ErrorClass, tuple[type[PykafkaError], str]] = {
    ErrorClass.UNAVAILABLE: (BrokerUnavailableError, UNREACHABLE_ADVICE),
    ErrorClass.TIMEOUT: (TimeoutExceededError, "are the brokers up, and not overloaded?"),
    ErrorClass.AUTHENTICATION: (
        AuthenticationError,
        "check kafka.security.protocol, kafka.sasl.mechanism and the credentials",
    ),
    ErrorClass.AUTHORIZATION: (AuthorizationError, "grant the permission (an ACL) on the broker"),
    ErrorClass.TLS: (
        TlsError,
        "check kafka.ssl.ca.location, the broker's certificate, and that the listener uses TLS",
    ),
    ErrorClass.UNKNOWN_TOPIC: (UnknownTopicError, "does the topic exist, with that partition?"),
}

# The broker does not support the request, or supports none of the engine's versions of it.
_UNSUPPORTED = frozenset({"UNSUPPORTED_VERSION", "_UNSUPPORTED_FEATURE"})

# librdkafka has no error code for an invalid configuration, only these texts.
_CONFIGURATION = re.compile(
    r"[Cc]onfiguration property|Failed to create (?:consumer|producer|admin)"
)

# Some failed handshakes have the code of a failed transport; only this text distinguishes them.
_UNTRUSTED = re.compile(r"certificate verify failed")

# If a connection ends during a handshake, the broker may be shutting down, or its listener may have
# another protocol. More than ``_MAX_CUT_OFFS`` such handshakes in a row, with only short pauses
# between them, mean another protocol.
_CUT_OFF = re.compile(
    r"handshake failed.*(?:Disconnected|[Tt]ransport failure|reset by peer|[Tt]imed out)", re.DOTALL
)
_MAX_CUT_OFFS = 4
_MAX_CUT_OFF_PAUSE_SECONDS = 30.0

_FATAL_CLASSES = frozenset({ErrorClass.AUTHENTICATION, ErrorClass.AUTHORIZATION, ErrorClass.TLS})

# librdkafka looks up the coordinator of any group id, but reading assigned partitions needs none.
_HARMLESS = frozenset({"GROUP_AUTHORIZATION_FAILED"})


# How many addresses an error shows.
_MAX_SHOWN = 5


def no_response_error(reasons: Sequence[str]) -> BrokerUnavailableError:
    """
    Return the error to raise when no broker answers, with the reason for each address.
    """
    shown = list(reasons[:_MAX_SHOWN])
    if len(reasons) > _MAX_SHOWN:
        shown.append(f"and {len(reasons) - _MAX_SHOWN} more")
    text = f"no broker answers: {', '.join(shown)}" if shown else "no broker answers"
    return with_advice(BrokerUnavailableError, text, UNREACHABLE_ADVICE)


def map_kafka_error(error: KafkaError, action: str) -> PykafkaError:
    """
    Return the connector's error; ``action`` names the operation, such as "reading t-0".
    """
    return _map(error, _error_class(error), action)


def _error_class(error: KafkaError) -> ErrorClass:
    if _UNTRUSTED.search(error.str()):
        return ErrorClass.TLS
    default = ErrorClass.RETRIABLE if error.retriable() else ErrorClass.OTHER
    return ERROR_CLASSES.get(error.name(), default)


def map_error_code(code: int, action: str, permission: str = "") -> PykafkaError:
    """
    Return the connector's error for a broker's error code; ``action`` names the operation.

    ``permission`` is the permission that the operation needs, such as "Write on the topic t".
    """
    name = PROTOCOL_NAMES.get(code, f"ERROR_{code}")
    error_class = ERROR_CLASSES.get(name, ErrorClass.OTHER)
    words = name.lower().replace("_", " ")
    message = f"{action}: the broker returned: {words} ({name})"
    return _make_error(message, code, name, error_class, permission)


def describe_permission(topic: str) -> str:
    """
    Return the permission that reading a topic's metadata needs.
    """
    return f"Describe, which Read and Write include, on the topic {topic}"


def are_settings_hidden(error: PykafkaError) -> bool:
    """
    Return whether an error means that brokers do not report a topic's settings to this user.

    Reading the settings requires the permission DescribeConfigs, and some services do not support
    the request.
    """
    if isinstance(error, KafkaClientError):
        return error.name in _UNSUPPORTED
    return isinstance(error, AuthorizationError)


def map_read_error(error: KafkaError, action: str) -> PykafkaError:
    """
    Return the error as :func:`map_kafka_error` does, but retriable if the broker failed
    unexpectedly.
    """
    return to_read_error(map_kafka_error(error, action))


def map_read_error_code(code: int, action: str, permission: str = "") -> PykafkaError:
    """
    Return the error as :func:`map_error_code` does, but retriable if the broker failed
    unexpectedly.

    Used for requests that change nothing, and that Java's consumer retries: Fetch (FetchCollector),
    ListOffsets, OffsetForLeaderEpoch (OffsetFetcherUtils), and Metadata (NetworkClient). A failed
    read from remote storage has the code UNKNOWN_SERVER_ERROR, for example (KIP-405).
    """
    return to_read_error(map_error_code(code, action, permission))


def to_read_error(error: PykafkaError) -> PykafkaError:
    """
    Return the error of a request that changes nothing: retriable if the broker failed unexpectedly.
    """
    if not isinstance(error, KafkaClientError) or not _is_unexpected(error):
        return error
    msg = f"{error.message}; see the broker's own log"
    return KafkaClientError(msg, error.code, error.name, retriable=True)


def _is_unexpected(error: KafkaClientError) -> bool:
    # Java's clients treat an unknown code as UNKNOWN_SERVER_ERROR (Errors.forCode).
    return error.code == KafkaErrorCode.UNKNOWN_SERVER_ERROR or error.name not in ERROR_CLASSES


def _map(error: KafkaError, error_class: ErrorClass, action: str) -> PykafkaError:
    name = error.name()
    message = f"{action}: {error.str()} ({name})"
    if error.fatal():
        return KafkaClientError(message, error.code(), name, retriable=False)
    if name == "_INVALID_ARG" and _CONFIGURATION.search(error.str()):
        return OptionsError((message,))
    if error_class is ErrorClass.OTHER and error.retriable():
        error_class = ErrorClass.RETRIABLE
    return _make_error(message, error.code(), name, error_class)


def _make_error(
    message: str, code: int, name: str, error_class: ErrorClass, permission: str = ""
) -> PykafkaError:
    if error_class is ErrorClass.DATA_LOSS:
        return DataLossError("KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE", message)
    if error_class in _CLASSES:
        exception, hint = _CLASSES[error_class]
        is_denied = error_class is ErrorClass.AUTHORIZATION and permission
        return exception(f"{message}; {hint}" + (f": allow {permission}" if is_denied else ""))
    return KafkaClientError(message, code, name, retriable=error_class is ErrorClass.RETRIABLE)


@contextmanager
def translating_errors(
    action: str, map_error: Callable[[KafkaError, str], PykafkaError] = map_kafka_error
) -> Iterator[None]:
    """
    Raise a ``KafkaException`` of the block as the connector's error; leave other exceptions as they
    are.
    """
    # Imported here, so that parsing options and planning do not load librdkafka.
    from confluent_kafka import KafkaException

    try:
        yield
    except KafkaException as cause:
        _raise(cause, action, map_error)


def _raise(
    cause: Exception, action: str, map_error: Callable[[KafkaError, str], PykafkaError]
) -> NoReturn:
    from confluent_kafka import KafkaError

    error = cause.args[0] if cause.args else None
    if isinstance(error, KafkaError):
        raise map_error(error, action) from cause
    msg = f"{action}: {cause}"
    raise KafkaClientError(
        msg, KafkaErrorCode.UNKNOWN_SERVER_ERROR.value, "UNKNOWN", retriable=False
    ) from cause


class FatalErrors:
    """
    Keeps the first fatal error of a client's background threads, which no call returns.

    librdkafka retries a rejected login forever and reports it only to its error callback, which
    must be :meth:`record`.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._first: tuple[KafkaError, ErrorClass] | None = None
        self._cut_offs = 0
        self._last_cut_off = 0.0

    # Invariant R5 (error callback).
    def record(self, error: KafkaError) -> None:
        """
        Keep the error if it is fatal and no other error is pending; librdkafka calls this while the
        client is polled.
        """
        if self._first is not None:
            return
        if _CUT_OFF.search(error.str()):
            self._record_cut_off(error)
        elif error.fatal() or (
            _error_class(error) in _FATAL_CLASSES and error.name() not in _HARMLESS
        ):
            self._first = (error, _error_class(error))

    def raise_pending(self, action: str) -> None:
        """
        Raise the recorded error, once: a retry starts without it.
        """
        if self._first is None:
            return
        (error, error_class), self._first, self._cut_offs = self._first, None, 0
        raise _map(error, error_class, action)

    def _record_cut_off(self, error: KafkaError) -> None:
        pause = self._now() - self._last_cut_off
        self._cut_offs = self._cut_offs + 1 if pause < _MAX_CUT_OFF_PAUSE_SECONDS else 1
        self._last_cut_off = self._now()
        if self._cut_offs > _MAX_CUT_OFFS:
            is_tls = "SSL handshake" in error.str()
            self._first = (error, ErrorClass.TLS if is_tls else ErrorClass.AUTHENTICATION)
