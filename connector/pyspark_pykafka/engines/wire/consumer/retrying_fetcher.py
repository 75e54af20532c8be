"""
Retries fetches from one partition after transient errors, until there is no progress for too long.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from pyspark_pykafka.engines.contract import MAX_THROTTLE_SECONDS, RecreatedTopicError
from pyspark_pykafka.engines.wire.consumer.partition_fetcher import ThrottledError
from pyspark_pykafka.engines.wire.consumer.truncation_check import LogTruncatedError
from pyspark_pykafka.errors import (
    BrokerUnavailableError,
    PykafkaError,
    SlowResponseError,
    StalledReadError,
    TimeoutExceededError,
    UnknownTopicError,
)
from pyspark_pykafka.retry import Backoff, Deadline

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_pykafka.engines.contract import Watermarks
    from pyspark_pykafka.engines.wire.consumer.partition_fetcher import (
        FetchResult,
        PartitionFetcher,
    )
    from pyspark_pykafka.engines.wire.network.cluster import Cluster

T = TypeVar("T")

logger = logging.getLogger("pyspark_pykafka")

# After a response that did not arrive in time, the next request is for a quarter of the bytes, but
# for at least ``_MIN_SLOW_BYTES``.
_SLOW_DIVISOR, _MIN_SLOW_BYTES = 4, 64 * 1024

# After this time without progress, a warning is logged.
_LOG_AFTER_SECONDS = 5.0


class _ProgressTimer:
    """
    The time that is left for progress, and the pauses between retries.

    The pauses after a lost connection, another error and an empty response grow independently.
    """

    def __init__(self, seconds: float, cluster: Cluster) -> None:
        config = cluster.config
        self.seconds = seconds
        self.new_deadline = cluster.new_deadline
        self.deadline = self.new_deadline(seconds)
        self._log_after = self.new_deadline(_LOG_AFTER_SECONDS)
        self._has_logged = False
        self._reconnect = Backoff(
            config.reconnect_backoff_seconds, config.reconnect_backoff_max_seconds
        )
        self._retry = Backoff(config.fetch_error_backoff_seconds, config.retry_backoff_max_seconds)
        self._stall = Backoff(config.retry_backoff_seconds, config.retry_backoff_max_seconds)

    def pause(self, error: PykafkaError) -> None:
        """
        Wait before the retry of a failed request.
        """
        backoff = self._reconnect if isinstance(error, BrokerUnavailableError) else self._retry
        self.deadline.pause(backoff.next_pause())

    def pause_after_empty(self) -> bool:
        """
        Wait, or return False if no time would be left for a retry.
        """
        pause = self._stall.next_pause()
        if pause >= self.deadline.remaining():
            return False
        self.deadline.pause(pause)
        return True

    def wait_for_throttle(self, seconds: float) -> None:
        """
        Wait for a broker's throttle time, and extend the deadline by as much.
        """
        if seconds > _LOG_AFTER_SECONDS:
            logger.warning("waiting %.1f s for a broker's quota", seconds)
        self.deadline = self.deadline.extended(seconds)
        self.deadline.sleep(seconds)

    def log_once(self, goal: str, reason: str) -> None:
        """
        Log a warning, once, if there has been no progress for a while.
        """
        if self._log_after.expired and not self._has_logged:
            self._has_logged = True
            logger.warning("still waiting for %s: %s", goal, reason)


class _MissingTopic:
    """
    Whether brokers have reported the topic as unknown for the whole time allowed for progress.

    That time starts with the first such report, which must come before the usual deadline; after
    any other error it starts again with the next report. The last report must come in the second
    half of that time: brokers that do not answer confirm nothing.
    """

    def __init__(self, timer: _ProgressTimer) -> None:
        self._timer = timer
        self._seconds = timer.seconds
        self._usual_deadline = timer.deadline
        self._missing_deadline: Deadline | None = None
        self._reported_at = 0.0

    def is_gone(self, error: PykafkaError) -> bool:
        """
        Record one more error, and return whether the topic no longer exists.
        """
        deadline = self._missing_deadline
        is_unknown = isinstance(error, UnknownTopicError)
        if is_unknown:
            self._reported_at = self._timer.deadline.now()
        # The deadline often cuts off the last try, so its error proves nothing about the topic.
        if deadline is not None and deadline.expired and error.retriable:
            return deadline.at - self._reported_at <= self._seconds / 2
        if not is_unknown:
            self._missing_deadline = None
            self._timer.deadline = self._usual_deadline
        elif deadline is None and not self._usual_deadline.expired:
            self._missing_deadline = self._timer.deadline = self._timer.new_deadline(self._seconds)
        return False


@dataclass(slots=True)
class RetryingFetcher:
    """
    Fetches from one partition until ``timeout_ms`` have passed without progress.

    A response is not progress by itself: the caller reports it with :meth:`on_progress`.
    """

    partition: PartitionFetcher
    timeout_ms: int
    max_throttle_seconds: float = MAX_THROTTLE_SECONDS
    _last_error: PykafkaError | None = field(init=False, default=None)
    _timer_since_progress: _ProgressTimer | None = field(init=False, default=None)
    # The limit of a request's bytes, once a response did not arrive in time.
    _max_bytes: int | None = field(init=False, default=None)
    # The sum of the throttle times since the last progress.
    _throttled_seconds: float = field(init=False, default=0.0)

    def watermarks(self) -> Watermarks:
        """
        Return the log start, and the end of the records that the isolation level makes visible.
        """
        return self._read_watermarks(self.partition.watermarks)

    def planned_watermarks(self) -> Watermarks | None:
        """
        Return as :meth:`watermarks` does, from a leader that two brokers confirm; or None if the
        planned topic no longer exists.
        """
        request = self.partition.confirmed_watermarks
        if self.partition.topic_id is None:
            return self._read_watermarks(request)
        return self._until_gone(request, self._offsets_goal)

    def confirm_one_topic(self) -> bool:
        """
        Whether all responses so far, and the watermarks, are certainly those of one topic.

        Requests metadata. A topic that does not exist now has not been recreated.
        """
        goal = f"the id of the topic {self.partition.tp.topic}"
        return self._until_gone(self._confirm_topic, goal) is not None

    def uncommitted_watermarks(self) -> Watermarks:
        """
        Return the log start and the high watermark, at any isolation level.
        """
        return self._read_watermarks(self.partition.uncommitted_watermarks)

    def fetch(self, offset: int, max_bytes: int, max_wait_ms: int) -> FetchResult | None:
        """
        Return the response for ``offset``, or None if the topic or partition no longer exists.

        A topic or partition counts as deleted if brokers report it as unknown for all of
        ``timeout_ms``: brokers learn of a new topic one after the other, and a broker that is cut
        off does not learn of it. Raises :class:`OutOfRangeError`, :class:`LogTruncatedError`, or
        :class:`StalledReadError` if brokers throttle for more than ``max_throttle_seconds`` in all.
        """
        goal = self._goal(offset)
        timer = self._current_timer()
        missing = _MissingTopic(timer)
        while True:
            try:
                if self.partition.in_flight_offset != offset:
                    size = self._limited(max_bytes)
                    self.partition.send_fetch(offset, size, max_wait_ms, timer.deadline)
                return self.partition.receive_fetch(timer.deadline)
            except ThrottledError as error:
                self._check_throttle(error, goal)
                timer.wait_for_throttle(error.seconds)
                missing = _MissingTopic(timer)
            except PykafkaError as error:
                if missing.is_gone(error):
                    return None
                if isinstance(error, SlowResponseError):
                    slow_bytes = self._limited(max_bytes)
                    self._max_bytes = max(slow_bytes // _SLOW_DIVISOR, _MIN_SLOW_BYTES)
                self._recover(error, goal, timer)

    def prefetch(self, offset: int, max_bytes: int, max_wait_ms: int) -> None:
        """
        Request the next records while the last ones are decoded, if the broker is available.
        """
        size = self._limited(max_bytes)
        try:
            self.partition.send_fetch(offset, size, max_wait_ms, self._new_timer().deadline)
        except (LogTruncatedError, ThrottledError):
            # fetch() raises the error again, after the records read before have been returned.
            return
        except PykafkaError as error:
            if not error.retriable:
                raise
            # fetch() retries, and raises when its time is over.
            self.partition.reset()
            logger.info("%s; retrying", error)

    def on_progress(self) -> None:
        """
        Restart the time allowed for progress: records have arrived, or offsets were skipped.
        """
        self._timer_since_progress = None
        self._last_error = None
        self._throttled_seconds = 0.0

    def back_off(self, offset: int, reason: str, *, pause: bool = True) -> None:
        """
        Wait before an offset is requested again, since a response brought no progress.

        Raises :class:`StalledReadError` once the time allowed for progress is over.
        """
        timer = self._current_timer()
        goal = self._goal(offset)
        stalled = (
            f"did not get {goal} within {self.timeout_ms} ms, and no response shows that there is "
            f"none: {reason}{'' if reason.endswith('?') else '.'}"
        )
        self._last_error = StalledReadError(
            f"{stalled} Set kafkaConsumer.pollTimeoutMs to wait longer"
        )
        # The cause is for callers whose time limit is not kafkaConsumer.pollTimeoutMs.
        self._last_error.__cause__ = TimeoutExceededError(stalled)
        timer.log_once(goal, reason)
        if timer.deadline.expired or (pause and not timer.pause_after_empty()):
            raise self._last_error

    def _limited(self, max_bytes: int) -> int:
        return max_bytes if self._max_bytes is None else min(max_bytes, self._max_bytes)

    def _check_throttle(self, error: ThrottledError, goal: str) -> None:
        self._throttled_seconds += error.seconds
        if self._throttled_seconds <= self.max_throttle_seconds:
            return
        msg = (
            f"did not get {goal}: broker {error.node} throttles this client for "
            f"{error.seconds * 1000:.0f} ms (quota), a total of {self._throttled_seconds:.0f} s "
            f"since the last record, more than the limit of {self.max_throttle_seconds:.0f} s; "
            "raise the quota of this user or client id (consumer_byte_rate, request_percentage)"
        )
        raise StalledReadError(msg)

    def _goal(self, offset: int) -> str:
        return f"a record of {self.partition.tp} at offset {offset}"

    @property
    def _offsets_goal(self) -> str:
        return f"the offsets of {self.partition.tp}"

    def _read_watermarks(self, request: Callable[[Deadline], Watermarks]) -> Watermarks:
        timer = self._new_timer()
        while True:
            try:
                return request(timer.deadline)
            except PykafkaError as error:
                self._recover(error, self._offsets_goal, timer)

    def _confirm_topic(self, deadline: Deadline) -> bool:
        try:
            self.partition.confirm_topic(deadline)
        except RecreatedTopicError:
            raise
        except UnknownTopicError as error:
            logger.info("%s; it was deleted after it was read", error)
        return True

    def _until_gone(self, request: Callable[[Deadline], T], goal: str) -> T | None:
        """
        Return the response, or None if the topic is gone, as :meth:`fetch` does.
        """
        timer = self._new_timer()
        missing = _MissingTopic(timer)
        while True:
            try:
                return request(timer.deadline)
            except PykafkaError as error:
                if missing.is_gone(error):
                    return None
                self._recover(error, goal, timer)

    def _current_timer(self) -> _ProgressTimer:
        """
        Return the timer that started at the first fetch since the last progress.
        """
        if self._timer_since_progress is None:
            self._timer_since_progress = self._new_timer()
        return self._timer_since_progress

    def _new_timer(self) -> _ProgressTimer:
        return _ProgressTimer(self.timeout_ms / 1000, self.partition.cluster)

    def _recover(self, error: PykafkaError, goal: str, timer: _ProgressTimer) -> None:
        if not error.retriable:
            raise error
        self.partition.reset()
        is_late = timer.deadline.expired
        # The deadline often cuts off the last try, so its error does not show the cause.
        if self._last_error is None or not is_late:
            self._last_error = error
        if is_late:
            if isinstance(self._last_error, StalledReadError):
                raise self._last_error from error
            msg = (
                f"did not get {goal} within {self.timeout_ms} ms: {self._last_error}. "
                "Set kafkaConsumer.pollTimeoutMs to wait longer"
            )
            raise TimeoutExceededError(msg) from error
        logger.info("%s; retrying", error)
        timer.log_once(goal, str(error))
        timer.pause(error)
