"""
The query of a run. It copies the input topic to the output topic with the connector, and is
restarted when it fails.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

from pyspark_pykafka.errors import error_text
from pyspark_pykafka.failures.restarts import QueryFailure, RestartPolicy, supervise
from pyspark_pykafka.offsets import offset_document
from pyspark_pykafka.signal_handlers import replaceable_handlers, restore_handlers
from pyspark_pykafka.verify.errors import CannotRunError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

POLICY = RestartPolicy(initial_delay=0.5, max_delay=5.0, attempts=None)
_STOP_SECONDS = 0.2


def local_session() -> tuple[SparkSession, bool]:
    """
    Return this process's Spark session, or a new one with two cores, and whether it is new.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    from pyspark_pykafka.testing import JavaNotFoundError, find_java

    active = SparkSession.getActiveSession()
    if active is not None:
        return active, False
    try:
        os.environ.setdefault("JAVA_HOME", str(find_java().parent.parent))
    except JavaNotFoundError as error:
        raise CannotRunError(str(error)) from error
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("pykafka verify")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.showConsoleProgress", "false")
    )
    try:
        session = start_session(builder)
    except PySparkException as error:
        msg = f"Spark could not be started: {error}; it needs Java 17 or 21 in JAVA_HOME"
        raise CannotRunError(msg) from error
    # A failing query is expected, and each restart reports its error.
    session.sparkContext.setLogLevel("OFF")
    return session, True


def start_session(builder: SparkSession.Builder) -> SparkSession:
    """
    Return the builder's session; a signal that arrives meanwhile is handled when Spark has started.

    Spark starts in another thread. In the main thread it would install a handler of SIGINT that
    calls Java to cancel jobs, in the middle of the call that the signal has interrupted.
    """
    sessions: list[SparkSession] = []
    errors: list[Exception] = []

    def start() -> None:
        try:
            sessions.append(builder.getOrCreate())
        except Exception as error:  # noqa: BLE001 (raised below)
            errors.append(error)

    # A daemon thread, so that a start that hangs does not keep this process alive.
    thread = threading.Thread(target=start, name="pykafka-verify-spark", daemon=True)
    with interrupts_deferred():
        thread.start()
        thread.join()
    for error in errors:
        raise error
    return sessions[0]


@contextlib.contextmanager
def interrupts_deferred() -> Iterator[None]:
    """
    Defer SIGINT, SIGTERM and SIGHUP to the end of the block; a second signal is handled at once.

    If Python were interrupted while it waits for Spark's Java process to start, that process would
    never be ended.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    deferred: list[int] = []
    handlers = replaceable_handlers("SIGINT", "SIGTERM", "SIGHUP")

    def defer(number: int, _: object) -> None:
        restore_handlers(handlers)
        deferred.append(number)

    for number in handlers:
        signal.signal(number, defer)
    try:
        yield
    finally:
        restore_handlers(handlers)
        for signal_number in deferred:
            signal.raise_signal(signal_number)


def summary(error: BaseException) -> str:
    """
    Return an error as one line. In py4j's messages the second line has Java's reason.
    """
    lines = [line.strip() for line in error_text(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    is_call = lines[0].startswith("An error occurred while calling")
    return lines[1].lstrip(": ") if is_call and len(lines) > 1 else lines[0]


class CopyQuery:
    """
    A thread that keeps the query running until it is stopped or fails for good.

    ``restarts`` counts the restarts after a failure; ``error`` is the error that ended the query.
    """

    def __init__(
        self,
        session: SparkSession,
        source: Mapping[str, str],
        sink: Mapping[str, str],
        on_restart: Callable[[QueryFailure], None],
    ) -> None:
        self.restarts = 0
        self.error: Exception | None = None
        self._session = session
        self._source, self._sink = source, sink
        self._on_restart = on_restart
        self._query: StreamingQuery | None = None
        self._ends: dict[str, Any] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pykafka-verify-query")

    def start(self) -> None:
        """
        Start the query.
        """
        self._thread.start()

    def stop(self) -> None:
        """
        Stop the query and return when it has ended, even if it is being restarted.
        """
        self._stopping.set()
        while self._thread.is_alive():
            # Without Spark's Java process the thread ends with the same error.
            with contextlib.suppress(*self._java_errors()):
                if self._query is not None:
                    self._query.stop()
            self._thread.join(_STOP_SECONDS)

    @property
    def has_started(self) -> bool:
        """
        Whether Spark has started the query at least once.
        """
        return self._query is not None

    @property
    def is_running(self) -> bool:
        """
        Whether the query runs, or is going to be restarted.
        """
        return self._thread.is_alive()

    def end_offsets(self, topic: str) -> dict[int, int]:
        """
        Return the end offsets of the last finished micro-batch, by partition.
        """
        query, progress = self._query, None
        # Without Spark's Java process the last known offsets remain.
        with contextlib.suppress(*self._java_errors()), interrupts_deferred():
            progress = None if query is None else query.lastProgress
        if progress is not None:
            (source,) = json.loads(progress.json)["sources"]
            self._ends = offset_document(source.get("endOffset")) or self._ends
        return {int(number): int(offset) for number, offset in self._ends.get(topic, {}).items()}

    def _run(self) -> None:
        try:
            # Spark looks up Python data sources in the thread's active session; this call sets it.
            self._session.createDataFrame([], "value binary")
            supervise(self._start, POLICY, self._report_failure)
        except Exception as error:  # noqa: BLE001 (part of the verdict)
            # A query may fail while it is stopped, for example if its brokers are gone.
            if not self._stopping.is_set():
                self.error = error

    def _report_failure(self, failure: QueryFailure) -> None:
        if not self._stopping.is_set():
            self.restarts += failure.pause_seconds is not None
            self._on_restart(failure)

    def _start(self) -> StreamingQuery:
        """
        Start the query; an error here that is not retriable ends the supervision.
        """
        if self._stopping.is_set():
            raise CannotRunError("the query is being stopped")
        try:
            frame = self._session.readStream.format("pykafka").options(**self._source).load()
            rows = frame.select("value", "partition")
            self._query = rows.writeStream.format("pykafka").options(**self._sink).start()
        except self._java_errors() as error:
            msg = f"Spark's Java process has ended: {error}"
            raise CannotRunError(msg) from error
        except Exception as error:
            if self._query is not None:
                raise
            # The query never ran, so the failure says nothing about the guarantee.
            msg = f"Spark could not start the query: {summary(error)}"
            raise CannotRunError(msg) from error
        return self._query

    @staticmethod
    def _java_errors() -> tuple[type[Exception], ...]:
        from py4j.protocol import Py4JNetworkError

        return (OSError, Py4JNetworkError)
