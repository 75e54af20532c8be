"""
Writes a query's progress to its store in the background: reading never waits for a store.

Only the end of an availableNow run waits, for a bounded time, because the process ends with it.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Protocol

from pyspark_pykafka.errors import PykafkaError
from pyspark_pykafka.progress.store import ClaimLostError
from pyspark_pykafka.progress.store_session import StoreSession, unknown_end_offsets
from pyspark_pykafka.retry import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_pykafka.offsets import StreamOffset
    from pyspark_pykafka.progress.record import FailedAttempts
    from pyspark_pykafka.progress.store import ProgressStore
    from pyspark_pykafka.progress.store_session import EndOffsets

logger = logging.getLogger("pyspark_pykafka")

_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.2, 10.0
_KEEP_ALIVE_SECONDS = 1.0
_FINISH_SECONDS = 10.0


class WaitFor(Protocol):
    """
    Waits on a condition until a predicate is true, as ``Condition.wait_for`` does.
    """

    def __call__(
        self,
        condition: threading.Condition,
        predicate: Callable[[], bool],
        timeout: float | None = None,
        /,
    ) -> bool:
        """
        Return the predicate's last value: False after the timeout.
        """


class StoreRecorder:
    """
    Updates a store from its own thread; of several pending offsets only the last is written.

    Retriable errors are retried while the process lives. Other errors stop the thread, and are
    raised by the query's next call. ``process`` is a unique, human-readable name of this process;
    ``end_offsets`` is that of :class:`StoreSession`; ``finish_seconds`` is the maximum duration of
    :meth:`finish`.
    """

    def __init__(
        self,
        make_store: Callable[[], ProgressStore],
        process: str,
        *,
        end_offsets: EndOffsets = unknown_end_offsets,
        finish_seconds: float = _FINISH_SECONDS,
        sleep: Callable[[float], None] = time.sleep,
        wait_for: WaitFor = threading.Condition.wait_for,
    ) -> None:
        self._make_store = make_store
        self._process = process
        self._end_offsets = end_offsets
        self._finish_seconds = finish_seconds
        self._sleep = sleep
        self._wait_for = wait_for
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None
        self._completed: StreamOffset | None = None
        self._recorded: StreamOffset | None = None
        self._replay: tuple[StreamOffset, StreamOffset] | None = None
        self._finished = False
        self._idle = False

    def __repr__(self) -> str:
        return (
            f"StoreRecorder({self._process!r}, completed={self._completed}, "
            f"recorded={self._recorded})"
        )

    def record_completed(self, completed: StreamOffset) -> None:
        """
        Store the offsets for the thread.
        """
        with self._changed:
            self._raise_failure()
            if self._is_new(completed):
                self._completed, self._finished, self._idle = completed, False, False
                self._wake()

    def record_replay(self, start: StreamOffset, end: StreamOffset) -> None:
        """
        Count the attempt in the store, and log it with the previous attempt's error.
        """
        with self._changed:
            self._raise_failure()
            self._replay, self._finished, self._idle = (start, end), False, False
            self._wake()

    def finish(self) -> None:
        """
        Wait until everything is recorded; after a timeout, the next run records the rest.
        """
        with self._changed:
            self._raise_failure()
            if self._thread is None:
                return
            self._finished = True
            self._wake()
            recorded = self._wait_for(self._changed, self._is_idle, self._finish_seconds)
            self._raise_failure()
        if not recorded:
            logger.warning(
                "The progress of the last micro-batch could not be recorded within %.0f s; the "
                "next run of the query will record it",
                self._finish_seconds,
            )

    def _is_new(self, completed: StreamOffset) -> bool:
        """
        Whether the offsets are new: Spark plans the next batch before it commits the last one.
        """
        earlier = self._completed
        if earlier is None:
            return True
        if earlier.query and completed.query and completed.query.batch < earlier.query.batch:
            return False
        return (completed.offsets, completed.topic_ids) != (earlier.offsets, earlier.topic_ids)

    def _is_idle(self) -> bool:
        return self._idle or self._failure is not None

    def _has_changes(self) -> bool:
        return self._recorded is not self._completed or self._replay is not None

    def _has_work(self) -> bool:
        return self._has_changes() or (self._finished and not self._idle)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _wake(self) -> None:
        self._changed.notify_all()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run_thread, name="pykafka-progress")
            # A daemon: the process ends when Spark decides, even if the store does not respond.
            self._thread.daemon = True
            self._thread.start()

    def _run_thread(self) -> None:
        try:
            self._run_session(StoreSession(self._make_store(), self._process, self._end_offsets))
        except Exception as error:  # noqa: BLE001 (the thread ends here; the next call raises it)
            with self._changed:
                self._failure = error
                self._changed.notify_all()

    def _run_session(self, session: StoreSession) -> None:
        backoff, is_failing = _backoff(), False
        while True:
            try:
                self._step(session)
            except ClaimLostError as loss:
                logger.info("%s; claiming the progress store again", loss)
                self._sleep(backoff.next_pause())
            except PykafkaError as error:
                if not error.retriable:
                    raise
                _log_failure(error, repeated=is_failing)
                is_failing = True
                self._sleep(backoff.next_pause())
            else:
                if is_failing:
                    logger.info("Progress is recorded again")
                backoff, is_failing = _backoff(), False

    def _step(self, session: StoreSession) -> None:
        """
        Wait for the next change, and write it to the store; or keep the claim alive after a while.
        """
        with self._changed:
            seconds = None if self._idle else _KEEP_ALIVE_SECONDS
            self._wait_for(self._changed, self._has_work, seconds)
            completed, replay = self._completed, self._replay
        if replay is not None:
            _log_attempt(session.count_attempt(*replay))
            with self._changed:
                self._replay = None
        if completed is not None:
            session.record(completed)
        with self._changed:
            self._recorded = completed
            is_over = self._finished and not self._has_changes()
        if is_over:
            session.close()
            with self._changed:
                self._idle = not self._has_changes()
                self._changed.notify_all()


def _backoff() -> Backoff:
    return Backoff(_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS)


def _log_failure(error: PykafkaError, *, repeated: bool) -> None:
    level = logging.INFO if repeated else logging.WARNING
    logger.log(level, "Progress cannot be recorded at the moment; reading continues: %s", error)


def _log_attempt(failing: FailedAttempts | None) -> None:
    if failing is None:
        return
    cause = f"; the last attempt failed with: {failing.cause}" if failing.cause else ""
    logger.warning(
        "Micro-batch %d is read again, attempt %d%s", failing.batch, failing.attempts, cause
    )
