"""
Errors as users and executors see them.
"""

from __future__ import annotations

import pickle
from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JJavaError, Py4JNetworkError

from pyspark_pykafka import errors
from pyspark_pykafka.errors import KafkaClientError, OptionsError, PykafkaError, error_text

ALL = [
    OptionsError(("a is wrong", "b is wrong")),
    errors.OffsetsError("CONDITION", "text"),
    errors.DataLossError("KAFKA_DATA_LOSS.X", "text"),
    errors.RecordError("CONDITION", "text"),
    errors.DeadLetterError("CONDITION", "text"),
    errors.ProgressError("CONDITION", "text"),
    errors.ExactlyOnceError("CONDITION", "text"),
    errors.ConcurrentWriteError("CONDITION", "text"),
    errors.UnknownTopicError("text"),
    errors.MissingTopicError("text"),
    errors.AuthenticationError("text"),
    errors.AuthorizationError("text"),
    errors.TlsError("text"),
    errors.TimeoutExceededError("text"),
    errors.SlowResponseError("text"),
    errors.StalledReadError("text"),
    errors.BrokerUnavailableError("text"),
    KafkaClientError("text", 3, "NAME", retriable=True),
]


@pytest.mark.parametrize("error", ALL, ids=lambda error: type(error).__name__)
def test_errors_pickle_whole(error: PykafkaError) -> None:
    """
    An error from an executor keeps its text and every attribute.
    """
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes

    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)
    assert copy.retriable == error.retriable


def test_every_error_is_listed_and_tested() -> None:
    """
    The tree in the module's docstring and this test name every error class.
    """
    public = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, PykafkaError) and name[0] != "_"
    }

    assert public == {type(error).__name__ for error in ALL} | {"PykafkaError"}
    assert all(name in str(errors.__doc__) for name in public)


def test_options_error_lists_every_mistake() -> None:
    """
    One message lists all mistakes, one per line.
    """
    lines = str(OptionsError(("first", "second"))).splitlines()

    assert lines == ["Spark options for 'pykafka' are wrong:", "- first", "- second"]


@pytest.mark.parametrize("unreachable", [ConnectionRefusedError, Py4JNetworkError])
def test_text_of_an_error_of_java_does_without_a_java_process(
    unreachable: type[Exception],
) -> None:
    """
    If Spark's Java process has ended, the text of its error is the line of py4j.
    """

    def refuse(command: str) -> str:
        raise unreachable(command)

    java = SimpleNamespace(_target_id="o7", _gateway_client=SimpleNamespace(send_command=refuse))
    error = Py4JJavaError("An error occurred while calling o7.stop.\n", java)

    assert error_text(error) == "An error occurred while calling o7.stop.\n"


class UnprintableError(Exception):
    """
    An error whose text cannot be created.
    """

    def __str__(self) -> str:
        raise KeyError("reason")


def test_text_of_any_error() -> None:
    """
    The text is the one that Python prints, if there is one.
    """
    assert error_text(ValueError("wrong")) == "wrong"
    assert error_text(UnprintableError()) == "no text (KeyError)"
