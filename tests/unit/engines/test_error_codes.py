"""
The error codes of brokers.
"""

from __future__ import annotations

import pickle

import pytest
from confluent_kafka import KafkaError

from pyspark_pykafka import errors
from pyspark_pykafka.engines.error_codes import ERROR_CLASSES, PROTOCOL_NAMES, KafkaErrorCode
from pyspark_pykafka.engines.error_mapping import (
    map_error_code,
    map_kafka_error,
    map_read_error,
    map_read_error_code,
)


def test_names_are_librdkafkas() -> None:
    """
    Each code has librdkafka's name, and an error class.
    """
    expected = {code: KafkaError(code).name() for code in PROTOCOL_NAMES}

    assert expected == PROTOCOL_NAMES
    assert set(PROTOCOL_NAMES.values()) <= ERROR_CLASSES.keys()


#: The codes whose names in librdkafka differ from Kafka's.
OTHER_NAMES = {
    "UNKNOWN_SERVER_ERROR": "UNKNOWN",
    "NONE": "NO_ERROR",
    "UNKNOWN_TOPIC_OR_PARTITION": "UNKNOWN_TOPIC_OR_PART",
    "MESSAGE_TOO_LARGE": "MSG_SIZE_TOO_LARGE",
}


@pytest.mark.parametrize("code", KafkaErrorCode)
def test_handled_codes_have_the_numbers_of_the_protocol(code: KafkaErrorCode) -> None:
    """
    Each code of the enum has Kafka's number; librdkafka lacks only TRANSACTIONAL_ID_NOT_FOUND.
    """
    name = OTHER_NAMES.get(code.name, code.name)

    assert PROTOCOL_NAMES.get(code, "TRANSACTIONAL_ID_NOT_FOUND") == name


def test_no_code_is_missing() -> None:
    """
    A librdkafka with more codes fails here until they are added.
    """
    expected = {code for code in range(-1, 200) if not KafkaError(code).name().startswith("ERR_")}

    assert expected <= PROTOCOL_NAMES.keys()


@pytest.mark.parametrize("code", sorted(PROTOCOL_NAMES))
def test_both_engines_raise_the_same_errors(code: int) -> None:
    """
    Both engines map a code to the same class, equally retriable, and the error can be pickled.
    """
    wire, librdkafka = map_error_code(code, "reading"), map_kafka_error(KafkaError(code), "reading")
    copy = pickle.loads(pickle.dumps(wire))  # noqa: S301 - our own bytes

    assert (type(wire), wire.retriable) == (type(librdkafka), librdkafka.retriable)
    assert (type(copy), str(copy), copy.retriable) == (type(wire), str(wire), wire.retriable)


@pytest.mark.parametrize("code", sorted(PROTOCOL_NAMES))
def test_reads_retry_one_more_code(code: int) -> None:
    """
    On both engines, requests that change nothing are retried after UNKNOWN_SERVER_ERROR too.
    """
    usual = map_error_code(code, "reading")
    for error in (
        map_read_error_code(code, "reading"),
        map_read_error(KafkaError(code), "reading"),
    ):
        is_unexpected = code == KafkaErrorCode.UNKNOWN_SERVER_ERROR
        assert type(error) is type(usual)
        assert error.retriable == (usual.retriable or is_unexpected)
        assert str(error).endswith("; see the broker's own log") == is_unexpected


def test_reads_retry_codes_of_newer_brokers() -> None:
    """
    A read retries a code that it does not know, as Java's clients do, which treat such a code as
    UNKNOWN_SERVER_ERROR.
    """
    errors_of_reads = [
        map_read_error_code(9999, "reading"),
        map_read_error(KafkaError(9999), "reading"),
    ]
    assert all(error.retriable for error in errors_of_reads)


def test_unknown_code_keeps_its_number() -> None:
    """
    A code that only newer brokers know is reported by its number.
    """
    error = map_error_code(9999, "reading t-0")

    assert isinstance(error, errors.KafkaClientError)
    assert (error.code, error.retriable) == (9999, False)
    assert str(error) == "reading t-0: the broker returned: error 9999 (ERROR_9999)"
