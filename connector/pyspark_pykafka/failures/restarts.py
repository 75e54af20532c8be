"""
Keeps a streaming query running: restarts it after errors that may be transient, not after others.
"""

from __future__ import annotations

import logging
import signal
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pyspark_pykafka import errors
from pyspark_pykafka.errors import check_values
from pyspark_pykafka.failures.spark_errors import connector_errors
from pyspark_pykafka.retry import Backoff
from pyspark_pykafka.signal_handlers import replaceable_handlers, restore_handlers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

logger = logging.getLogger("pyspark_pykafka")

# The longest single wait for the query's end, so that a signal is noticed soon.
_POLL_SECONDS = 1


class Query(Protocol):
    """
    The part of ``pyspark.sql.streaming.StreamingQuery`` that :func:`supervise` uses.
    """

    @property
    def recentProgress(self) -> Sequence[Any]:  # noqa: N802 (Spark's name)
        """
        The progress of the last micro-batches since the query's start, 100 of them by default.
        """

    def awaitTermination(self, timeout: int | None = None) -> bool | None:  # noqa: N802 (likewise)
        """
        Return whether the query has ended; raise the error that ended it.
        """

    def stop(self) -> None:
        """
        Stop the query.
        """


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """
    When and how often a failed query is restarted; times are in seconds.

    The pause after the first failure is ``initial_delay``. Each further pause is ``multiplier``
    times as long, up to ``max_delay``, plus jitter of up to a fifth. After ``attempts`` consecutive
    failures the query is not restarted (None: always restarted); a finished micro-batch with rows
    resets the count and the pause.

    Raises :class:`~pyspark_pykafka.errors.OptionsError` for values out of range::

        RestartPolicy(initial_delay=5.0, max_delay=60.0, attempts=None)
    """

    initial_delay: float = 1.0
    multiplier: float = 2.0
    max_delay: float = 300.0
    attempts: int | None = 10

    def __post_init__(self) -> None:
        """
        Raise :class:`~pyspark_pykafka.errors.OptionsError` for values out of range.
        """
        checks = (
            ("initial_delay", self.initial_delay > 0, "more than 0 seconds"),
            ("multiplier", self.multiplier >= 1, "at least 1"),
            ("max_delay", self.max_delay >= self.initial_delay, "at least initial_delay"),
            ("attempts", self.attempts is None or self.attempts >= 1, "at least 1, or None"),
        )
        check_values(self, checks)


@dataclass(frozen=True, slots=True)
class QueryFailure:
    """
    One failure of a query.

    ``number`` counts consecutive failures, from 1. ``fatal`` is true if a restart would fail in the
    same way. ``pause_seconds`` is the time until the restart, or None if the query is not
    restarted.
    """

    number: int
    error: Exception
    fatal: bool
    pause_seconds: float | None


def supervise(
    start: Callable[[], Query],
    policy: RestartPolicy = RestartPolicy(),
    on_failure: Callable[[QueryFailure], None] = lambda _: None,
) -> None:
    """
    Run a query until it ends by itself or a signal stops it; restart it when it fails.

    ``start`` creates and starts the query, with the same checkpoint each time; ``on_failure`` is
    called with each failure. Raises the query's error if it is fatal (invalid options, rejected
    credentials, lost records) or the policy's attempts are exhausted.

    On SIGINT or SIGTERM the query is stopped and the function returns. Signals are only handled on
    the main thread::

        def start():
            return frame.writeStream.option("checkpointLocation", path).format("delta").start()

        supervise(start, RestartPolicy(attempts=5))
    """
    with _stopping_on_signals() as stopped:
        _Supervisor(start, policy, on_failure, stopped, stopped.wait).run()


def is_fatal(error: BaseException) -> bool:
    """
    Whether a restart cannot help, judged by the connector's own errors.

    Other errors are not fatal: they may be transient. Nor is :class:`KafkaClientError`: some of its
    instances are retriable, and an error that arrives as text shows only its class. Nor is
    :class:`MissingTopicError`: somebody may create the topic before the restart.
    """
    return any(
        not kind.retriable and kind not in {errors.KafkaClientError, errors.MissingTopicError}
        for kind in connector_errors(error)
    )


def is_transient(error: BaseException) -> bool:
    """
    Whether the error is a retriable one of the connector, as in an outage.
    """
    return any(kind.retriable for kind in connector_errors(error))


@dataclass(slots=True)
class _Supervisor:
    start: Callable[[], Query]
    policy: RestartPolicy
    on_failure: Callable[[QueryFailure], None]
    stopped: threading.Event
    sleep: Callable[[float], object]

    def run(self) -> None:
        failures, backoff = 0, self._backoff()
        while not self.stopped.is_set():
            query: Query | None = None
            try:
                query = self.start()
                self._await_end(query)
            except Exception as error:
                if query is not None and _finished_a_batch(query):
                    failures, backoff = 0, self._backoff()
                failures += 1
                failure = self._assess(failures, error, backoff)
                self._report(failure)
                if failure.pause_seconds is None:
                    raise
                self.sleep(failure.pause_seconds)
            else:
                return

    def _await_end(self, query: Query) -> None:
        while not query.awaitTermination(_POLL_SECONDS):
            if self.stopped.is_set():
                query.stop()
                return

    def _assess(self, number: int, error: Exception, backoff: Backoff) -> QueryFailure:
        fatal = is_fatal(error)
        exhausted = self.policy.attempts is not None and number >= self.policy.attempts
        pause = None if fatal or exhausted else backoff.next_pause()
        return QueryFailure(number, error, fatal, pause)

    def _report(self, failure: QueryFailure) -> None:
        kind = "fatal" if failure.fatal else "not fatal"
        action = (
            "the query is not restarted"
            if failure.pause_seconds is None
            else f"the query is restarted in {failure.pause_seconds:.1f} s"
        )
        message = str(failure.error).split("\n", 1)[0]
        logger.warning(
            "The query failed %d times in a row; the error is %s, and %s: %s",
            *(failure.number, kind, action, message),
        )
        self.on_failure(failure)

    def _backoff(self) -> Backoff:
        return Backoff(self.policy.initial_delay, self.policy.max_delay, self.policy.multiplier)


def _finished_a_batch(query: Query) -> bool:
    # Not only the last batch counts: with a watermark, Spark adds a batch without rows after each.
    return any(progress["numInputRows"] > 0 for progress in query.recentProgress)


@contextmanager
def _stopping_on_signals() -> Iterator[threading.Event]:
    stopped = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return
    before = replaceable_handlers("SIGINT", "SIGTERM")
    for number in before:
        signal.signal(number, lambda *_: stopped.set())
    try:
        yield stopped
    finally:
        restore_handlers(before)
