"""
Errors as users and executors see them.
"""

from __future__ import annotations

import pickle

import pytest

from pyspark_pykafka import errors
from pyspark_pykafka.errors import KafkaClientError, OptionsError, PykafkaError

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
