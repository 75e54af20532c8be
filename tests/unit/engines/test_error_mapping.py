"""
The Kafka client's errors as the connector's.
"""

from __future__ import annotations

import pickle

import pytest
from confluent_kafka import KafkaError, KafkaException

from pyspark_pykafka import errors
from pyspark_pykafka.engines.error_codes import ERROR_CLASSES
from pyspark_pykafka.engines.error_mapping import FatalErrors, map_kafka_error, translating_errors

NAMES = sorted(name for name in dir(KafkaError) if isinstance(getattr(KafkaError, name), int))


def of(name: str, reason: str | None = None, **flags: bool) -> KafkaError:
    return KafkaError(getattr(KafkaError, name), reason, **flags)


def test_every_error_of_the_client_has_a_meaning() -> None:
    """
    A client with a new error code fails here until the code is classified.
    """
    assert [name for name in NAMES if name not in ERROR_CLASSES] == []


@pytest.mark.parametrize("name", NAMES)
def test_every_error_maps_and_pickles(name: str) -> None:
    """
    Each becomes a connector's error that says what was done and crosses processes.
    """
    mapped = map_kafka_error(of(name), "reading t-0")
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
def test_the_class_says_what_to_do(
    name: str, expected: type[errors.PykafkaError], retriable: bool
) -> None:
    """
    Who are you, may you, can it be trusted, is it there, can it be tried again: a class each.
    """
    mapped = map_kafka_error(of(name), "reading")

    assert type(mapped) is expected
    assert mapped.retriable is retriable


def test_an_error_that_ends_the_client_is_final() -> None:
    """
    Whatever its code: a fatal error of the client cannot be tried again with it.
    """
    mapped = map_kafka_error(of("_TRANSPORT", fatal=True), "writing")

    assert isinstance(mapped, errors.KafkaClientError)
    assert not mapped.retriable


def test_a_code_that_nobody_knows_yet_is_as_retriable_as_it_says() -> None:
    """
    A newer broker's error is passed on with what the client knows of it.
    """
    mapped = map_kafka_error(KafkaError(9999, "new", retriable=True), "reading")

    assert isinstance(mapped, errors.KafkaClientError)
    assert mapped.retriable


def test_exceptions_of_the_client_are_translated_with_their_cause() -> None:
    """
    The block's exception becomes ours, and the original one stays visible.
    """
    original = KafkaException(of("_SSL", "certificate verify failed"))

    with (
        pytest.raises(errors.TlsError, match="reading t: certificate verify failed") as caught,
        translating_errors("reading t"),
    ):
        raise original

    assert caught.value.__cause__ is original


def test_an_exception_without_an_error_is_translated_too() -> None:
    """
    Some exceptions of the client carry only a text.
    """
    original = KafkaException("odd")

    with (
        pytest.raises(errors.KafkaClientError, match="reading t: odd"),
        translating_errors("reading t"),
    ):
        raise original


def test_other_exceptions_pass() -> None:
    """
    What is not the client's is left alone.
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
def test_final_errors_of_the_background_are_raised_once(
    name: str, expected: type[errors.PykafkaError]
) -> None:
    """
    Where librdkafka would try to log in for ever we raise; a later try gets its own answer.
    """
    fatal = FatalErrors()
    fatal.record(of("_TRANSPORT"))
    fatal.record(of(name, "refused"))

    with pytest.raises(expected, match="reading: refused"):
        fatal.raise_pending("reading")
    fatal.raise_pending("reading")


@pytest.mark.parametrize("name", ["_TRANSPORT", "_ALL_BROKERS_DOWN", "GROUP_AUTHORIZATION_FAILED"])
def test_what_passes_by_itself_is_not_raised(name: str) -> None:
    """
    Brokers come back, and reading assigned partitions needs no permission on a group.
    """
    fatal = FatalErrors()

    fatal.record(of(name))

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
def test_a_handshake_cut_off_again_and_again_is_final(
    name: str, reason: str, expected: type[errors.PykafkaError]
) -> None:
    """
    A few times it is a broker that goes down; then it is a listener of another kind.
    """
    fatal = FatalErrors(now=lambda: 100.0)
    for _ in range(4):
        fatal.record(of(name, reason))
    fatal.raise_pending("reading")

    fatal.record(of(name, reason))

    with pytest.raises(expected, match="reading: S"):
        fatal.raise_pending("reading")


def test_handshakes_cut_off_now_and_then_do_not_add_up() -> None:
    """
    A client that lives long sees brokers restart; that is not counted for ever.
    """
    times = iter(range(0, 100_000, 31))
    fatal = FatalErrors(now=lambda: float(next(times)))

    for _ in range(20):
        fatal.record(of("_TRANSPORT", "SSL handshake failed: Disconnected"))

    fatal.raise_pending("reading")


def test_an_untrusted_certificate_is_a_tls_error_whatever_its_code() -> None:
    """
    OpenSSL's refusal reaches us as a failure of the transport first.
    """
    mapped = map_kafka_error(of("_TRANSPORT", "certificate verify failed"), "reading")

    assert isinstance(mapped, errors.TlsError)
