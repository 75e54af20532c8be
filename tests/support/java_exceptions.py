"""
Exceptions of Java as py4j and PySpark show them, without a JVM.
"""

from __future__ import annotations

from dataclasses import dataclass

from py4j.protocol import Py4JError


@dataclass(frozen=True)
class JavaClass:
    """
    A class of Java.
    """

    name: str

    def getName(self) -> str:  # noqa: N802 (Java's name)
        return self.name


@dataclass(frozen=True)
class JavaException:
    """
    An exception of Java; only Spark's own have a condition.
    """

    kind: str
    message: str | None = None
    cause: JavaException | None = None
    condition: str | None = None

    def chain(self) -> list[JavaException]:
        """
        Return the exception and its causes.
        """
        return [self, *(self.cause.chain() if self.cause else ())]

    def getClass(self) -> JavaClass:  # noqa: N802 (Java's name)
        return JavaClass(self.kind)

    def getMessage(self) -> str | None:  # noqa: N802 (likewise)
        return self.message

    def getCause(self) -> JavaException | None:  # noqa: N802 (likewise)
        return self.cause

    def getCondition(self) -> str:  # noqa: N802 (likewise)
        if self.condition is None:
            msg = "Method getCondition([]) does not exist"
            raise Py4JError(msg)
        return self.condition


class RaisedByJavaError(Exception):
    """
    An error as py4j raises it: its text has the exception of Java and all of its causes.
    """

    def __init__(self, java: JavaException) -> None:
        self.java_exception = java
        text = "\nCaused by: ".join(
            f"{exception.kind}: {exception.message}" for exception in java.chain()
        )
        super().__init__(f"An error occurred while calling o1.save.\n: {text}")


class CapturedByPySparkError(Exception):
    """
    An error as PySpark raises it, for exceptions of Java that have a class in PySpark.
    """

    def __init__(self, java: JavaException) -> None:
        self._origin = java
        super().__init__(java.message)


class RaisedByConnectError(Exception):
    """
    An error as a client of Spark Connect raises it.
    """

    def __init__(self, message: str, condition: str | None) -> None:
        self._condition = condition
        super().__init__(message)

    def getCondition(self) -> str | None:  # noqa: N802 (PySpark's name)
        return self._condition


SPARK = "org.apache.spark.SparkException"

#: The exceptions of a query that is being stopped: of its job, and of the thread that waits for it.
CANCELLED_JOB = JavaException(
    SPARK,
    "[SPARK_JOB_CANCELLED] Job 7 cancelled part of cancelled job group 1f2e SQLSTATE: XXKDA",
    condition="SPARK_JOB_CANCELLED",
)
INTERRUPTED_THREAD = JavaException("java.lang.InterruptedException")


def failed_task(message: str, kind: str = "org.apache.spark.api.python.PythonException") -> str:
    """
    Return the message of a job whose task failed with an exception of Java.
    """
    return (
        "Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times, most recent "
        f"failure: Lost task 0.0 in stage 3.0 (TID 5) (broker.local executor driver): {kind}: "
        f"{message}\n\n"
        "\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(x.scala:1)\n\n"
        "Driver stacktrace:"
    )
