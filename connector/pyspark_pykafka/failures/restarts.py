"""
Keeping a streaming query alive: starting it again after errors that pass, and only after those.
"""

from __future__ import annotations

import logging
import re
import signal
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pyspark_pykafka import errors
from pyspark_pykafka.errors import PykafkaError, check_values
from pyspark_pykafka.retry import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

logger = logging.getLogger("pyspark_pykafka")

# How long one wait for the query's end may be, so that a signal is noticed soon.
_SLICE_SECONDS = 1

# An error that crossed from an executor or the planning process is text by the time it arrives.
_NAMED = re.compile(r"pyspark_pykafka\.errors\.(\w+)")


class Query(Protocol):
    """
    What is used of ``pyspark.sql.streaming.StreamingQuery``.
    """

    @property
    def lastProgress(self) -> Any:  # noqa: N802 (Spark's name)
        """
        The progress of the last micro-batch, or None.
        """

    def awaitTermination(self, timeout: int | None = None) -> bool | None:  # noqa: N802 (likewise)
        """
        Return whether the query has ended; raise what ended it.
        """

    def stop(self) -> None:
        """
        Stop the query.
        """


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """
    When a failed query is started again; times are seconds.

    The pause after the first failure is ``initial_delay``; each of the next is ``multiplier`` times
    as long, up to ``max_delay``, and up to a fifth longer by chance. After ``attempts`` failures
    in a row it is given up (None: never); a micro-batch that finishes ends the row.

    Raises :class:`~pyspark_pykafka.errors.OptionsError` for values that make no sense.
    """

    initial_delay: float = 1.0
    multiplier: float = 2.0
    max_delay: float = 300.0
    attempts: int | None = 10

    def __post_init__(self) -> None:
        """
        Refuse what cannot be meant.
        """
        checks = (
            ("initial_delay", self.initial_delay > 0, "more than 0 seconds"),
            ("multiplier", self.multiplier >= 1, "at least 1"),
            ("max_delay", self.max_delay >= self.initial_delay, "at least initial_delay"),
            ("attempts", self.attempts is None or self.attempts >= 1, "at least 1, or None"),
        )
        check_values(self, checks)


@dataclass(frozen=True, slots=True)
class Attempt:
    """
    One failure of a query: its number in the row, what failed, and what happens next.

    ``fatal`` says that the same would happen again; ``pause_seconds`` is None where the query is
    not started again.
    """

    number: int
    error: Exception
    fatal: bool
    pause_seconds: float | None


def supervise(
    start: Callable[[], Query],
    policy: RestartPolicy = RestartPolicy(),
    on_attempt: Callable[[Attempt], None] = lambda _: None,
) -> None:
    """
    Run a query until it ends by itself, or a signal ends it, starting it again when it fails.

    ``start`` makes and starts the query, with the same checkpoint each time; ``on_attempt`` is told
    of each failure. Raises the query's error once it is fatal (wrong options, refused credentials,
    lost records) or the policy gives up. On SIGINT or SIGTERM the query is stopped, and this
    returns; signals are noticed on the main thread only.
    """
    with _stopping_on_signals() as stopped:
        _Supervisor(start, policy, on_attempt, stopped).run()


def is_fatal(error: BaseException) -> bool:
    """
    Whether starting the query again cannot help, as far as the connector's own errors tell.

    An error of which the connector knows nothing may pass.
    """
    return any(not k.retriable and k is not errors.KafkaClientError for k in _known(error))


def is_transient(error: BaseException) -> bool:
    """
    Whether the connector's own errors say that the same can succeed later, as after an outage.
    """
    return any(kind.retriable for kind in _known(error))


def _known(error: BaseException) -> list[type[PykafkaError]]:
    if isinstance(error, PykafkaError):
        return [type(error)]
    kinds = [getattr(errors, name, None) for name in _NAMED.findall(str(error))]
    return [k for k in kinds if isinstance(k, type) and issubclass(k, PykafkaError)]


@dataclass(slots=True)
class _Supervisor:
    start: Callable[[], Query]
    policy: RestartPolicy
    on_attempt: Callable[[Attempt], None]
    stopped: threading.Event

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
                attempt = self._judged(failures, error, backoff)
                self._tell(attempt)
                if attempt.pause_seconds is None:
                    raise
                self.stopped.wait(attempt.pause_seconds)
            else:
                return

    def _await_end(self, query: Query) -> None:
        while not query.awaitTermination(_SLICE_SECONDS):
            if self.stopped.is_set():
                query.stop()
                return

    def _judged(self, number: int, error: Exception, backoff: Backoff) -> Attempt:
        fatal = is_fatal(error)
        last = self.policy.attempts is not None and number >= self.policy.attempts
        pause = None if fatal or last else backoff.next_pause()
        return Attempt(number, error, fatal, pause)

    def _tell(self, attempt: Attempt) -> None:
        what = "which would happen again" if attempt.fatal else "which may pass"
        then = (
            "given up"
            if attempt.pause_seconds is None
            else f"started again in {attempt.pause_seconds:.1f} s"
        )
        first = str(attempt.error).split("\n", 1)[0]
        logger.warning(
            "query failed, failure %d in a row, %s; %s: %s", attempt.number, what, then, first
        )
        self.on_attempt(attempt)

    def _backoff(self) -> Backoff:
        return Backoff(self.policy.initial_delay, self.policy.max_delay, self.policy.multiplier)


def _finished_a_batch(query: Query) -> bool:
    progress = query.lastProgress
    return progress is not None and progress["numInputRows"] > 0


@contextmanager
def _stopping_on_signals() -> Iterator[threading.Event]:
    stopped = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        signal.signal(number, lambda *_: stopped.set())
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
