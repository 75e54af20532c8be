"""
How the connector's errors are reported to Spark.
"""

from __future__ import annotations

import os
import pickle
from typing import TYPE_CHECKING

import pytest

from pyspark_pykafka.errors import (
    DataLossError,
    KafkaClientError,
    OptionsError,
    PykafkaError,
    UnknownTopicError,
)
from pyspark_pykafka.spark.error_report import HIDE_TRACEBACK, reports_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@reports_errors
class Adapter:
    """
    A stand-in for a class that Spark calls.
    """

    def fail(self, error: Exception) -> None:
        """
        Raise the error.
        """
        raise error

    def read(self, error: Exception) -> Iterator[int]:
        """
        Yield one result, and then raise the error.
        """
        yield 1
        raise error


def read_all(error: Exception) -> None:
    """
    Consume the results of a reader, as Spark does.
    """
    list(Adapter().read(error))


def main(call: Callable[[Exception], None], error: Exception, infile: object) -> str:
    """
    Call an adapter in a function like that of Spark's workers.
    """
    assert infile is not None
    return call_directly(call, error)


def call_directly(call: Callable[[Exception], None], error: Exception) -> str:
    """
    Call an adapter; return the value of the environment variable that hides tracebacks.
    """
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv(HIDE_TRACEBACK, "")
        with pytest.raises(type(error)):
            call(error)
        return os.environ[HIDE_TRACEBACK]


@pytest.mark.parametrize("call", [Adapter().fail, read_all])
def test_only_own_errors_in_a_worker_hide_the_traceback(
    call: Callable[[Exception], None],
) -> None:
    """
    Errors that are not the connector's keep their traceback, and if a program calls a reader
    itself, every error keeps it.
    """
    error = UnknownTopicError("the brokers do not have the topic 't'")

    assert main(call, error, object()) == "1"
    assert main(call, ZeroDivisionError("a user's"), object()) == ""
    assert call_directly(call, error) == ""


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OptionsError(("a is 'b'; it must be: c",)), "[INVALID_OPTIONS] a is 'b'; it must be: c"),
        (UnknownTopicError("no topic"), "[UNKNOWN_TOPIC] no topic"),
        (DataLossError("KAFKA_DATA_LOSS.X", "gone"), "[KAFKA_DATA_LOSS.X] gone"),
        (KafkaClientError("no", 1, "_FAIL", retriable=False), "[KAFKA_FAIL] no"),
    ],
)
def test_a_reported_error_begins_with_its_condition(error: PykafkaError, text: str) -> None:
    """
    The text is one line that begins with the condition, even after a copy to another process.
    """
    with pytest.raises(PykafkaError):
        Adapter().fail(error)

    assert str(error) == text
    assert str(pickle.loads(pickle.dumps(error))) == text  # noqa: S301 (our own bytes)


def test_several_mistakes_have_a_line_each() -> None:
    """
    Wrong options are reported together: a heading with the condition, and a line for each mistake.
    """
    error = OptionsError(("a is 'b'; it must be: c", "'d' is not an option", "e is missing"))
    with pytest.raises(OptionsError):
        Adapter().fail(error)

    heading, *lines = str(error).splitlines()
    assert heading.startswith("[INVALID_OPTIONS] ")
    assert lines == [f"- {mistake}" for mistake in error.mistakes]


def test_the_text_of_an_error_is_bounded() -> None:
    """
    A long text keeps its beginning and the advice at its end, and the attributes are complete.
    """
    mistakes = ("begin " + "x" * 50_000 + " end",)

    error = OptionsError(mistakes)

    assert len(str(error)) < 4_100
    assert "begin xxx" in str(error)
    assert "characters left out" in str(error)
    assert str(error).endswith("xxx end")
    assert error.mistakes == mistakes
