"""
The supervised query of `pykafka verify`: a start that fails, and errors in one line.
"""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.support.streams import SECONDS

from pyspark_pykafka.testing.waiting import wait_until
from pyspark_pykafka.verify.errors import CannotRunError
from pyspark_pykafka.verify.query import CopyQuery, interrupts_deferred, start_session, summary

if TYPE_CHECKING:
    from typing import Self

    from pyspark.sql import SparkSession

    from pyspark_pykafka.failures.restarts import QueryFailure


class Unstartable:
    """
    A session whose streams cannot be read.
    """

    def __init__(self, error: Exception) -> None:
        self._error = error

    def createDataFrame(self, *_: Any) -> None:  # noqa: N802 (Spark's name)
        pass

    @property
    def readStream(self) -> Any:  # noqa: N802 (likewise)
        raise self._error


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ConnectionRefusedError("gone"), "Spark's Java process has ended: gone"),
        (ValueError("no such format"), "Spark could not start the query: no such format"),
    ],
)
def test_a_query_that_never_started_is_not_restarted(error: Exception, text: str) -> None:
    """
    A query whose first start fails is not restarted, and the error names the reason.
    """
    failures: list[QueryFailure] = []
    session = cast("SparkSession", Unstartable(error))
    query = CopyQuery(session, {}, {}, failures.append)

    query.start()
    wait_until(lambda: "it still runs" if query.is_running else None, SECONDS)
    query.stop()

    assert isinstance(query.error, CannotRunError)
    assert str(query.error) == text
    assert (len(failures), query.restarts, query.has_started) == (1, 0, False)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[CONDITION] what is wrong\n\tat org.apache", "[CONDITION] what is wrong"),
        ("An error occurred while calling o54.start.\n: java.lang.Reason", "java.lang.Reason"),
        ("", "ValueError"),
    ],
)
def test_summary_is_the_line_with_the_reason(text: str, line: str) -> None:
    """
    The summary is the first line, or Java's reason on the second line of py4j's message, or else
    the error's class.
    """
    assert summary(ValueError(text)) == line


def interrupted(times: int) -> list[str]:
    """
    Return the steps that a block reaches if it is interrupted this many times.
    """
    reached = []
    try:
        with interrupts_deferred():
            for _ in range(times):
                signal.raise_signal(signal.SIGINT)
            reached.append("the end of the block")
    except KeyboardInterrupt:
        reached.append("the interrupt")
    return reached


def test_interrupt_is_handled_after_the_block() -> None:
    """
    Ctrl-C while Spark's Java process starts is deferred: the process would be left behind.
    """
    assert interrupted(1) == ["the end of the block", "the interrupt"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


class SparkThatIsInterrupted:
    """
    Starts as Spark does: in the main thread it takes over SIGINT. Then the signal arrives.
    """

    def __init__(self) -> None:
        self.has_started = False

    def getOrCreate(self) -> Self:  # noqa: N802 (Spark's name)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self._cancel_jobs)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        self.has_started = True
        return self

    def _cancel_jobs(self, *_: object) -> None:
        msg = "called in the middle of another call"
        raise AssertionError(msg)


def test_spark_does_not_take_over_the_signals() -> None:
    """
    Spark's own handler would call Java while Spark starts, in the middle of another call.
    """
    builder = SparkThatIsInterrupted()

    with pytest.raises(KeyboardInterrupt):
        start_session(cast("SparkSession.Builder", builder))

    assert builder.has_started
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


class SparkThatFails:
    """
    A Spark that cannot be started.
    """

    def getOrCreate(self) -> None:  # noqa: N802 (likewise)
        raise OSError("no Java")


def test_error_of_the_start_is_raised() -> None:
    """
    An error of Spark's start is raised in the thread that asked for it.
    """
    with pytest.raises(OSError, match="no Java"):
        start_session(cast("SparkSession.Builder", SparkThatFails()))


def test_second_interrupt_is_handled_at_once() -> None:
    """
    A second Ctrl-C is handled at once, so that a start that hangs can be interrupted.
    """
    assert interrupted(2) == ["the interrupt"]
