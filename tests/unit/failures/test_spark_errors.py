"""
What is found in Spark's exceptions: their types and conditions count, not the records they quote.
"""

from __future__ import annotations

import pytest
from tests.support.java_exceptions import (
    CANCELLED_JOB,
    INTERRUPTED_THREAD,
    SPARK,
    CapturedByPySparkError,
    JavaException,
    RaisedByConnectError,
    RaisedByJavaError,
    failed_task,
)

from pyspark_pykafka.errors import AuthenticationError, DataLossError, PykafkaError
from pyspark_pykafka.failures.spark_errors import (
    connector_errors,
    connector_errors_in_text,
    is_cancellation,
)

LOSS = "pyspark_pykafka.errors.DataLossError: [KAFKA_DATA_LOSS.X] records are gone"
FRAMES = (
    'Traceback (most recent call last):\n  File "/job/run.py", line 3, in f\n    g()\n    ~^^\n'
)
STREAM = "[STREAM_FAILED] Query [id = 1-2, runId = 3-4] terminated with exception: "
PROXY = "An exception was raised by the Python Proxy. Return Message: "
DIRECT = "\n\nThe above exception was the direct cause of the following exception:\n\n"
DURING = "\n\nDuring handling of the above exception, another exception occurred:\n\n"

#: The messages of Spark 4.0 to 4.3 that contain an error of the connector.
CARRIERS = {
    "bare": LOSS,
    "planning a stream": f"{STREAM}[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python "
    f"streaming data source perform planPartitions: {LOSS}\n SQLSTATE: 38000",
    "planning a batch": "[PYTHON_DATA_SOURCE_ERROR] Failed to plan Python data source pykafka: "
    f"{LOSS}",
    "a task": STREAM + failed_task(LOSS),
    "a task, with a condition": failed_task(
        f"[PYTHON_EXCEPTION] An exception was thrown from the Python worker: {LOSS}"
    ),
    "a task, with a traceback": failed_task(f"{FRAMES}{LOSS}"),
    "a call": f"An error occurred while calling o7.save.\n: {SPARK}: {failed_task(LOSS)}",
    "a function of foreachBatch": f"{STREAM}[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred "
    f"in the user provided function in foreach batch sink. Reason: {PROXY}{FRAMES}{LOSS}\n",
    "a function that caught another error": f"py4j.Py4JException: {PROXY}{FRAMES}OSError: no"
    f"{DIRECT}{FRAMES}{LOSS}\n",
    "Spark Connect": f"(org.apache.spark.sql.streaming.StreamingQueryException) {STREAM}"
    "[session: 1] [userId: me] Found error inside foreachBatch Python process: "
    f"{FRAMES}KeyError: 7{DURING}{FRAMES}{LOSS}",
}

#: Texts that a record can have: one line of a log, or several.
LOGGED = [
    "log line pyspark_pykafka.errors.DataLossError",
    LOSS,
    f"\n{LOSS}",
    f"at x.y {LOSS}",
    f"{FRAMES}{LOSS}",
    f"\nCaused by: org.apache.spark.api.python.PythonException: {LOSS}",
    "at x.y java.lang.InterruptedException: sleep",
    "[SPARK_JOB_CANCELLED] Job 7 cancelled part of cancelled job group 1f2e",
    f"\n{CANCELLED_JOB.kind}: {CANCELLED_JOB.message}",
]


def quoting(record: str) -> list[BaseException]:
    """
    Return errors that quote a record: a failed cast, two tasks that fail in a cast and in Python,
    and an error of the user's function.
    """
    cast_kind = "org.apache.spark.SparkNumberFormatException"
    text = f"[CAST_INVALID_INPUT] The value '{record}' of the type STRING cannot be cast to INT"
    cast = JavaException(cast_kind, text, condition="CAST_INVALID_INPUT")
    python = JavaException(
        "org.apache.spark.api.python.PythonException", f"{FRAMES}ValueError: cannot take {record}"
    )
    return [
        CapturedByPySparkError(cast),
        RaisedByJavaError(JavaException(SPARK, failed_task(text, cast_kind), cast)),
        RaisedByJavaError(JavaException(SPARK, failed_task(python.message or ""), python)),
        ValueError(f"cannot take '{record}'"),
    ]


@pytest.mark.parametrize("record", LOGGED)
def test_text_of_a_record_is_no_error_and_no_stop(record: str) -> None:
    """
    An error that quotes a record is neither an error of the connector nor the stop of a job, even
    if the record contains the text of either.
    """
    for error in quoting(record):
        assert connector_errors(error) == []
        assert not is_cancellation(error)


@pytest.mark.parametrize("text", CARRIERS.values(), ids=CARRIERS)
def test_errors_of_the_connector_in_spark_s_messages(text: str) -> None:
    """
    An error of an executor, of the planning process or of a function of ``foreachBatch`` keeps its
    class, whether an exception of Java is behind it or only a text.
    """
    in_java = JavaException("org.apache.spark.sql.streaming.StreamingQueryException", text)

    for error in (CapturedByPySparkError(in_java), RaisedByConnectError(text, None)):
        assert connector_errors(error) == [DataLossError]
    assert connector_errors_in_text(text) == [DataLossError]


def test_errors_of_the_connector_among_the_causes() -> None:
    """
    Spark's writers of files wrap the error of a task; a cause in Python counts as well.
    """
    lost = JavaException("org.apache.spark.api.python.PythonException", LOSS)
    text = "[TASK_WRITE_FAILED] Task failed while writing rows to file:/data. SQLSTATE: 58030"
    writing = JavaException(SPARK, text, lost, "TASK_WRITE_FAILED")
    job = RaisedByJavaError(JavaException(SPARK, failed_task(text, SPARK), writing))
    assert connector_errors(job) == [DataLossError]
    assert connector_errors_in_text(str(job)) == [DataLossError]

    error = RuntimeError("the job failed")
    error.__cause__ = AuthenticationError("no")
    assert connector_errors(error) == [AuthenticationError]


def test_unknown_classes_are_none_of_the_connector() -> None:
    """
    A name below the module of the connector's errors does not count if it is not an error class
    there.
    """
    texts = [f"pyspark_pykafka.errors.{name}: ?" for name in ("NoSuchError", "check_values")]

    assert [connector_errors(RuntimeError(text)) for text in texts] == [[], []]
    assert connector_errors(RuntimeError(f"{LOSS}, {PykafkaError.__name__}")) == [DataLossError]


@pytest.mark.parametrize("cause", [CANCELLED_JOB, INTERRUPTED_THREAD])
@pytest.mark.parametrize("kind", [RaisedByJavaError, CapturedByPySparkError])
def test_stops_are_recognised_by_type_and_condition(
    kind: type[RaisedByJavaError | CapturedByPySparkError], cause: JavaException
) -> None:
    """
    A cancelled job and an interrupted thread are stops, also as causes of other exceptions.
    """
    wrapped = JavaException(SPARK, "Writing job aborted", cause, "WRITING_JOB_ABORTED")
    raised_again = RuntimeError("cannot write")
    raised_again.__cause__ = kind(wrapped)

    for error in (kind(cause), kind(wrapped), raised_again):
        assert is_cancellation(error)
        assert connector_errors(error) == []


def test_stops_on_spark_connect() -> None:
    """
    A client of Spark Connect has the condition only.
    """
    text = CANCELLED_JOB.message or ""

    assert is_cancellation(RaisedByConnectError(text, "SPARK_JOB_CANCELLED"))
    assert not is_cancellation(RaisedByConnectError(text, "CAST_INVALID_INPUT"))
