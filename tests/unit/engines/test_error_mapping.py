"""
Errors of librdkafka become the connector's errors.
"""

from __future__ import annotations

import pickle

import pytest
from confluent_kafka import KafkaError, KafkaException

from pyspark_pykafka import errors
from pyspark_pykafka.engines.error_codes import ERROR_CLASSES
from pyspark_pykafka.engines.error_mapping import FatalErrors, map_kafka_error, translating_errors

NAMES = sorted(name for name in dir(KafkaError) if isinstance(getattr(KafkaError, name), int))


def kafka_error(name: str, reason: str | None = None, **flags: bool) -> KafkaError:
    return KafkaError(getattr(KafkaError, name), reason, **flags)


def test_every_error_of_librdkafka_has_a_class() -> None:
    """
    A librdkafka with a new error code fails here until the code is classified.
    """
    assert [name for name in NAMES if name not in ERROR_CLASSES] == []


@pytest.mark.parametrize("name", NAMES)
def test_every_error_maps_and_pickles(name: str) -> None:
    """
    Each error becomes a connector's error with the failed action in its text, and can be pickled.
    """
    mapped = map_kafka_error(kafka_error(name), "reading t-0")
    copy = pickle.loads(pickle.dumps(mapped))  # noqa: S301 - our own bytes

    assert "reading t-0: " in str(mapped)
    assert name in str(mapped)
    assert (type(copy), str(copy), copy.retriable) == (type(mapped), str(mapped), mapped.retriable)


@pytest.mark.parametrize(
    ("name", "expected", "retriable"),
    [
        ("_TRANSPORT", errors.BrokerUnavailableError, True),
        ("_ALL_BROKERS_DOWN", errors.BrokerUnavailableError, True),
        ("NOT_LEADER_FOR_PARTITION", errors.BrokerUnavailableError, True),
        ("_TIMED_OUT", errors.TimeoutExceededError, True),
        ("_MSG_TIMED_OUT", errors.TimeoutExceededError, True),
        ("_AUTHENTICATION", errors.AuthenticationError, False),
        ("SASL_AUTHENTICATION_FAILED", errors.AuthenticationError, False),
        ("TOPIC_AUTHORIZATION_FAILED", errors.AuthorizationError, False),
        ("CLUSTER_AUTHORIZATION_FAILED", errors.AuthorizationError, False),
        ("_SSL", errors.TlsError, False),
        ("UNKNOWN_TOPIC_OR_PART", errors.UnknownTopicError, True),
        ("_UNKNOWN_PARTITION", errors.UnknownTopicError, True),
        ("OFFSET_OUT_OF_RANGE", errors.DataLossError, False),
        ("_AUTO_OFFSET_RESET", errors.DataLossError, False),
        ("NOT_ENOUGH_REPLICAS", errors.KafkaClientError, True),
        ("MSG_SIZE_TOO_LARGE", errors.KafkaClientError, False),
        ("_FENCED", errors.KafkaClientError, False),
        ("POLICY_VIOLATION", errors.KafkaClientError, False),
    ],
)
def test_errors_are_classified_by_remedy(
    name: str, expected: type[errors.PykafkaError], retriable: bool
) -> None:
    """
    Authentication, authorization, TLS, unknown topics and transient errors have a class each.
    """
    mapped = map_kafka_error(kafka_error(name), "reading")

    assert type(mapped) is expected
    assert mapped.retriable is retriable


def test_fatal_errors_are_not_retriable() -> None:
    """
    A fatal error of a client is not retriable, whatever its code.
    """
    mapped = map_kafka_error(kafka_error("_TRANSPORT", fatal=True), "writing")

    assert isinstance(mapped, errors.KafkaClientError)
    assert not mapped.retriable


def test_unknown_code_keeps_librdkafkas_retriable_flag() -> None:
    """
    An unknown code of a newer broker is retriable if librdkafka says so.
    """
    mapped = map_kafka_error(KafkaError(9999, "new", retriable=True), "reading")

    assert isinstance(mapped, errors.KafkaClientError)
    assert mapped.retriable


def test_exceptions_are_translated_with_their_cause() -> None:
    """
    A KafkaException becomes the connector's error, with the original as its cause.
    """
    original = KafkaException(kafka_error("_SSL", "certificate verify failed"))

    with (
        pytest.raises(errors.TlsError, match="reading t: certificate verify failed") as caught,
        translating_errors("reading t"),
    ):
        raise original

    assert caught.value.__cause__ is original


def test_exception_without_an_error_object_is_translated() -> None:
    """
    An exception of librdkafka that has only a text is translated, too.
    """
    original = KafkaException("odd")

    with (
        pytest.raises(errors.KafkaClientError, match="reading t: odd"),
        translating_errors("reading t"),
    ):
        raise original


def test_other_exceptions_are_not_changed() -> None:
    """
    An exception that is not librdkafka's passes unchanged.
    """
    original = LookupError("mine")

    with pytest.raises(LookupError, match="mine"), translating_errors("reading"):
        raise original


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("_AUTHENTICATION", errors.AuthenticationError),
        ("_SSL", errors.TlsError),
        ("TOPIC_AUTHORIZATION_FAILED", errors.AuthorizationError),
    ],
)
def test_fatal_background_errors_are_raised_once(
    name: str, expected: type[errors.PykafkaError]
) -> None:
    """
    A rejected login, certificate or permission is raised once; librdkafka would retry without end.
    """
    fatal = FatalErrors()
    fatal.record(kafka_error("_TRANSPORT"))
    fatal.record(kafka_error(name, "refused"))

    with pytest.raises(expected, match="reading: refused"):
        fatal.raise_pending("reading")
    fatal.raise_pending("reading")


@pytest.mark.parametrize("name", ["_TRANSPORT", "_ALL_BROKERS_DOWN", "GROUP_AUTHORIZATION_FAILED"])
def test_transient_and_harmless_background_errors_are_not_raised(name: str) -> None:
    """
    Transient errors, and those about groups, are not raised: a read of assigned partitions needs no
    permission on a group.
    """
    fatal = FatalErrors()

    fatal.record(kafka_error(name))

    fatal.raise_pending("reading")


@pytest.mark.parametrize(
    ("name", "reason", "expected"),
    [
        ("_TRANSPORT", "SSL handshake failed: Disconnected", errors.TlsError),
        ("_SSL", "SSL handshake failed: Disconnected", errors.TlsError),
        (
            "_AUTHENTICATION",
            "SASL PLAIN mechanism handshake failed: Local: Broker transport failure",
            errors.AuthenticationError,
        ),
    ],
)
def test_repeatedly_cut_off_handshake_is_fatal(
    name: str, reason: str, expected: type[errors.PykafkaError]
) -> None:
    """
    A few cut-off handshakes mean that a broker shuts down; more mean that the listener speaks
    another protocol.
    """
    fatal = FatalErrors(now=lambda: 100.0)
    for _ in range(4):
        fatal.record(kafka_error(name, reason))
    fatal.raise_pending("reading")

    fatal.record(kafka_error(name, reason))

    with pytest.raises(expected, match="reading: S"):
        fatal.raise_pending("reading")


def test_occasional_cut_off_handshakes_do_not_add_up() -> None:
    """
    A long-lived client sees brokers restart; handshakes cut off far apart are not counted together.
    """
    times = iter(range(0, 100_000, 31))
    fatal = FatalErrors(now=lambda: float(next(times)))

    for _ in range(20):
        fatal.record(kafka_error("_TRANSPORT", "SSL handshake failed: Disconnected"))

    fatal.raise_pending("reading")


def test_untrusted_certificate_is_a_tls_error() -> None:
    """
    Librdkafka may report OpenSSL's rejection as a transport failure; it is a TLS error.
    """
    mapped = map_kafka_error(kafka_error("_TRANSPORT", "certificate verify failed"), "reading")

    assert isinstance(mapped, errors.TlsError)
