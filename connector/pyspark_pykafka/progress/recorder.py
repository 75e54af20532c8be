"""
Writes a query's progress to its store, beside the query: reading never waits for a store.

Only the end of an availableNow run waits, for a bounded time, since the process ends with it.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from pyspark_pykafka.errors import PykafkaError
from pyspark_pykafka.progress.store import ClaimLostError
from pyspark_pykafka.progress.store_session import StoreSession
from pyspark_pykafka.retry import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_pykafka.offsets import StreamOffset
    from pyspark_pykafka.progress.record import FailedAttempts
    from pyspark_pykafka.progress.store import ProgressStore

logger = logging.getLogger("pyspark_pykafka")

_LEAST_PAUSE, _MOST_PAUSE = 0.2, 10.0
_TEND_SECONDS = 1.0
_FINISH_SECONDS = 10.0


class Recorder:
    """
    Keeps a store up to date from a thread of its own; of several offsets only the last counts.

    Errors that pass are tried again for as long as the process lives; others stop the thread, and
    the query with its next call. ``run`` names this process for people; ``finish_seconds`` bounds
    :meth:`finish`.
    """

    def __init__(
        self,
        make_progress_store: Callable[[], ProgressStore],
        run: str,
        finish_seconds: float = _FINISH_SECONDS,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._make_store = make_progress_store
        self._run = run
        self._finish_seconds = finish_seconds
        self._sleep = sleep
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None
        self._done: StreamOffset | None = None
        self._recorded: StreamOffset | None = None
        self._replay: tuple[StreamOffset, StreamOffset] | None = None
        self._finished = False
        self._resting = False

    def record_completed(self, done: StreamOffset) -> None:
        """
        Take note, and let the thread know.
        """
        with self._changed:
            self._raise_failure()
            if self._is_news(done):
                self._done, self._finished, self._resting = done, False, False
                self._wake()

    def record_replay(self, start: StreamOffset, end: StreamOffset) -> None:
        """
        Count the attempt in the store, and log what the store knows of the earlier ones.
        """
        with self._changed:
            self._raise_failure()
            self._replay, self._finished, self._resting = (start, end), False, False
            self._wake()

    def finish(self) -> None:
        """
        Wait until all is recorded, or the time for it is over; then the next run records it.
        """
        with self._changed:
            self._raise_failure()
            if self._thread is None:
                return
            self._finished = True
            self._wake()
            recorded = self._changed.wait_for(self._at_rest, self._finish_seconds)
            self._raise_failure()
        if not recorded:
            logger.warning(
                "the progress of the last micro-batch could not be recorded within %.0f s; the "
                "next run of the query does it",
                self._finish_seconds,
            )

    def _is_news(self, done: StreamOffset) -> bool:
        """
        Whether this is told for the first time: Spark's commit comes after its next question.
        """
        known = self._done
        if known is None:
            return True
        if known.query and done.query and done.query.batch < known.query.batch:
            return False
        return (done.offsets, done.topic_ids) != (known.offsets, known.topic_ids)

    def _at_rest(self) -> bool:
        return self._resting or self._failure is not None

    def _dirty(self) -> bool:
        return self._recorded is not self._done or self._replay is not None

    def _has_work(self) -> bool:
        return self._dirty() or (self._finished and not self._resting)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _wake(self) -> None:
        self._changed.notify_all()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run_keeper, name="pykafka-progress")
            # The process ends when Spark says so, whatever the store is doing.
            self._thread.daemon = True
            self._thread.start()

    def _run_keeper(self) -> None:
        try:
            self._keep(StoreSession(self._make_store(), self._run))
        except Exception as error:  # noqa: BLE001 (the edge of a thread; the next call raises it)
            with self._changed:
                self._failure = error
                self._changed.notify_all()

    def _keep(self, keeper: StoreSession) -> None:
        backoff, troubled = _backoff(), False
        while True:
            try:
                self._step(keeper)
            except ClaimLostError as loss:
                logger.info("%s; claiming it again", loss)
                self._sleep(backoff.next_pause())
            except PykafkaError as error:
                if not error.retriable:
                    raise
                _tell_trouble(error, again=troubled)
                troubled = True
                self._sleep(backoff.next_pause())
            else:
                if troubled:
                    logger.info("progress is recorded again")
                backoff, troubled = _backoff(), False

    def _step(self, keeper: StoreSession) -> None:
        """
        Do the next thing that there is to do, waiting for it.
        """
        with self._changed:
            self._changed.wait_for(self._has_work, None if self._resting else _TEND_SECONDS)
            done, replay = self._done, self._replay
        if replay is not None:
            _tell_attempt(keeper.count_attempt(*replay))
            with self._changed:
                self._replay = None
        if done is not None:
            keeper.record(done)
        with self._changed:
            self._recorded = done
            over = self._finished and not self._dirty()
        if over:
            keeper.close()
            with self._changed:
                self._resting = not self._dirty()
                self._changed.notify_all()


def _backoff() -> Backoff:
    return Backoff(_LEAST_PAUSE, _MOST_PAUSE)


def _tell_trouble(error: PykafkaError, *, again: bool) -> None:
    level = logging.INFO if again else logging.WARNING
    logger.log(level, "progress cannot be recorded now, reading goes on without: %s", error)


def _tell_attempt(failing: FailedAttempts | None) -> None:
    if failing is None:
        return
    cause = f"; what ended the last one: {failing.cause}" if failing.cause else ""
    logger.warning(
        "micro-batch %d is read again, attempt %d%s", failing.batch, failing.attempts, cause
    )
