"""
Finds the connector's errors, and cancellations of jobs, in the exceptions of Spark.

An error of an executor or of the planning process reaches the driver as text in Java's exceptions.
That text can quote records, and a record can hold the text of any error, such as a line of a log.
So only types, conditions and the beginnings of messages count, which Spark and Python write.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pyspark_pykafka import errors
from pyspark_pykafka.errors import PykafkaError

if TYPE_CHECKING:
    from collections.abc import Iterator

_CANCELLED = "SPARK_JOB_CANCELLED"
# Spark's own streams ignore these in a query that is being stopped
# (StreamExecution.isInterruptionException).
_INTERRUPTIONS = {
    "java.lang.InterruptedException",
    "java.io.InterruptedIOException",
    "java.nio.channels.ClosedByInterruptException",
}

_CONNECTOR_ERROR = re.compile(r"pyspark_pykafka\.errors\.(\w+)\b")
_TRACEBACK = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)*(\S.*)")
_NEXT_TRACEBACK = re.compile(
    r"\n\n(?:The above exception was the direct cause of the following exception"
    r"|During handling of the above exception, another exception occurred):\n\n"
)
_START = re.compile(f"{_CONNECTOR_ERROR.pattern}|{_TRACEBACK.pattern}")
_CAUSED_BY = re.compile(r"^Caused by: ", re.MULTILINE)

# The text before a Python error in a message may hold only these conditions and exceptions. Others,
# and quotation marks, show that the message is that of another error.
_QUOTED = re.compile("['\"`]")
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_.]+)\]")
_WRAPPING_CONDITION = re.compile(r"STREAM_FAILED|PYTHON_\w+|FOREACH_(?:BATCH_)?USER_FUNCTION_ERROR")
_EXCEPTION = re.compile(r"[\w.$]*(?:Exception|Error)\b")
_WRAPPING_EXCEPTION = re.compile(
    r"(?:org\.apache\.spark|py4j)\.[\w.$]+|java\.util\.concurrent\.ExecutionException"
)

# A safety limit: chains of causes are far shorter, and form no cycles in Java and Python.
_MAX_CAUSES = 100


def connector_errors(error: BaseException) -> list[type[PykafkaError]]:
    """
    Return the classes of the connector's errors that an exception is, wraps or was caused by.
    """
    kinds: list[type[PykafkaError]] = []
    for cause in _python_causes(error):
        if isinstance(cause, PykafkaError):
            kinds.append(type(cause))
        else:
            kinds += _kinds(name for text in _messages(cause) for name in _names_at_start(text))
    return kinds


def connector_errors_in_text(text: str) -> list[type[PykafkaError]]:
    """
    Return the classes of the connector's errors that ended a query, from the text of its exception.
    """
    return list(_kinds(name for part in _CAUSED_BY.split(text) for name in _names_at_start(part)))


def is_cancellation(error: BaseException) -> bool:
    """
    Whether a job was cancelled, as when its query is stopped: its records did not fail.
    """
    return any(_is_cancelled(cause) for cause in _python_causes(error))


def _is_cancelled(error: BaseException) -> bool:
    java = _java_exception(error)
    if java is not None:
        return any(
            cause.getClass().getName() in _INTERRUPTIONS or _condition(cause) == _CANCELLED
            for cause in _java_causes(java)
        )
    # Exceptions of Spark Connect have the condition, but no exception of Java behind them.
    get_condition = getattr(error, "getCondition", None)
    return get_condition is not None and get_condition() == _CANCELLED


def _python_causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    for _ in range(_MAX_CAUSES):
        if cause is None:
            return
        yield cause
        cause = cause.__cause__


def _java_exception(error: BaseException) -> Any:
    """
    Return the exception of Java behind an exception of PySpark or py4j; None if there is none.
    """
    return getattr(error, "_origin", None) or getattr(error, "java_exception", None)


def _java_causes(java: Any) -> Iterator[Any]:
    for _ in range(_MAX_CAUSES):
        if java is None:
            return
        yield java
        java = java.getCause()


def _condition(java: Any) -> str | None:
    # Not at the top: pure modules do without Spark's libraries.
    from py4j.protocol import Py4JError

    try:
        return str(java.getCondition())
    except Py4JError:
        # Only Spark's own exceptions have conditions.
        return None


def _messages(error: BaseException) -> Iterator[str]:
    java = _java_exception(error)
    if java is not None:
        for cause in _java_causes(java):
            yield cause.getMessage() or ""
    elif hasattr(error, "getCondition"):
        # The text of an exception of Spark Connect contains the causes.
        yield from _CAUSED_BY.split(str(error))
    else:
        yield str(error)


def _names_at_start(message: str) -> Iterator[str]:
    """
    Yield the connector's errors at the beginning of a message, after the text of Spark's wrappers.

    Without a traceback this is one error; with a traceback, all errors of its chain of exceptions.
    """
    match = _START.search(message)
    if match is None or not _is_wrapper(message[: match.start()]):
        return
    traceback = _TRACEBACK.match(message, match.start())
    if traceback is None:
        yield match[1]
    while traceback is not None:
        raised = _CONNECTOR_ERROR.match(traceback[1])
        if raised is not None:
            yield raised[1]
        # The chain ends at a message of several lines, since that may quote a record.
        following = _NEXT_TRACEBACK.match(message, traceback.end())
        traceback = _TRACEBACK.match(message, following.end()) if following else None


def _is_wrapper(text: str) -> bool:
    return (
        not _QUOTED.search(text)
        and all(_WRAPPING_CONDITION.fullmatch(match) for match in _CONDITION.findall(text))
        and all(_WRAPPING_EXCEPTION.fullmatch(match) for match in _EXCEPTION.findall(text))
    )


def _kinds(names: Iterator[str]) -> Iterator[type[PykafkaError]]:
    for name in names:
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, PykafkaError):
            yield kind
