"""
Asking a broker again after errors that pass, until the time for progress is over.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark_pykafka.engines.contract import MAX_THROTTLE_SECONDS
from pyspark_pykafka.engines.wire.consumer.partition_fetcher import ThrottledError
from pyspark_pykafka.engines.wire.consumer.truncation_check import LogTruncatedError
from pyspark_pykafka.errors import (
    BrokerUnavailableError,
    PykafkaError,
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
    from pyspark_pykafka.settings.wire_config import WireConfig

logger = logging.getLogger("pyspark_pykafka")

# After so long without progress it is said what is waited for.
_TELL_SECONDS = 5.0


class _Patience:
    """
    How long to go on trying, and how long to wait in between: after a lost connection, after an
    error, and after an answer that brought nothing.
    """

    def __init__(self, seconds: float, config: WireConfig) -> None:
        self.seconds = seconds
        self.deadline = Deadline.after(seconds)
        self._untold = Deadline.after(_TELL_SECONDS)
        self._told = False
        self._reconnect = Backoff(
            config.reconnect_backoff_seconds, config.reconnect_backoff_max_seconds
        )
        self._retry = Backoff(config.fetch_error_backoff_seconds, config.retry_backoff_max_seconds)
        self._stall = Backoff(config.retry_backoff_seconds, config.retry_backoff_max_seconds)

    def pause(self, error: PykafkaError) -> None:
        backoff = self._reconnect if isinstance(error, BrokerUnavailableError) else self._retry
        time.sleep(self.deadline.remaining(max_seconds=backoff.next_pause()))

    def pause_stalled(self) -> bool:
        """
        Wait, or return False if there would be no time left for another try.
        """
        pause = self._stall.next_pause()
        if pause >= self.deadline.remaining():
            return False
        time.sleep(pause)
        return True

    def wait_for_quota(self, seconds: float) -> None:
        """
        Wait for as long as a broker wants, and have as much time left as before.
        """
        if seconds > _TELL_SECONDS:
            logger.warning("waiting %.1f s for a broker's quota", seconds)
        self.deadline = Deadline(self.deadline.at + seconds)
        time.sleep(seconds)

    def tell_once(self, awaited: str, why: str) -> None:
        if self._untold.expired and not self._told:
            self._told = True
            logger.warning("still waiting for %s: %s", awaited, why)


class _Unknown:
    """
    Whether brokers have not known a topic for all of the time that there is for progress.

    Where they begin to say so later, that time is counted from then on, once.
    """

    def __init__(self, patience: _Patience) -> None:
        self._patience = patience
        self._seconds = patience.seconds
        self._usual = patience.deadline
        self._gone: Deadline | None = None

    def for_all_the_time(self, error: PykafkaError) -> bool:
        """
        Take in one more error, and return whether the topic is gone.
        """
        # The last try is often cut off by the deadline itself, which says nothing new.
        if self._gone is not None and self._gone.expired and error.retriable:
            return True
        if not isinstance(error, UnknownTopicError):
            self._gone = None
            self._patience.deadline = self._usual
        elif self._gone is None and not self._usual.expired:
            self._gone = self._patience.deadline = Deadline.after(self._seconds)
        return False


@dataclass(slots=True)
class RetryingFetcher:
    """
    Fetches from one partition until ``timeout_ms`` have passed without progress.

    What counts as progress is the caller's to say (:meth:`progressed`); an answer does not.
    """

    partition: PartitionFetcher
    timeout_ms: int
    max_throttle_seconds: float = MAX_THROTTLE_SECONDS
    _trouble: PykafkaError | None = field(init=False, default=None)
    _since_progress: _Patience | None = field(init=False, default=None)
    # How long brokers have asked to wait for since the last progress.
    _throttled_seconds: float = field(init=False, default=0.0)

    def watermarks(self) -> Watermarks:
        """
        Return the log start, and the end of the records that the isolation level makes visible.
        """
        return self._read_watermarks(self.partition.watermarks)

    def uncommitted_watermarks(self) -> Watermarks:
        """
        Return the log start and the high watermark, at any isolation level.
        """
        return self._read_watermarks(self.partition.uncommitted_watermarks)

    def fetch(self, offset: int, size: int, wait_ms: int) -> FetchResult | None:
        """
        Return the answer for ``offset``, or None if the topic or partition is gone.

        Gone is what brokers have not known for all of the time: each of them learns of a new topic
        in its own time, and one that is cut off from the others does not. Raises
        :class:`StalledReadError` for a broker that throttles for more than
        ``max_throttle_seconds`` in all, :class:`OutOfRangeError`, or
        :class:`LogTruncatedError`.
        """
        awaited = self._awaited(offset)
        patience = self._patience()
        unknown = _Unknown(patience)
        while True:
            try:
                if self.partition.asked != offset:
                    self.partition.send_fetch(offset, size, wait_ms, patience.deadline)
                return self.partition.receive_fetch(patience.deadline)
            except ThrottledError as error:
                self._check_throttle(error, awaited)
                patience.wait_for_quota(error.seconds)
                unknown = _Unknown(patience)
            except PykafkaError as error:
                if unknown.for_all_the_time(error):
                    return None
                self._recover(error, awaited, patience)

    def prefetch(self, offset: int, size: int, wait_ms: int) -> None:
        """
        Send for the next records while the last are decoded, if the broker is well.
        """
        try:
            self.partition.send_fetch(offset, size, wait_ms, self._new_patience().deadline)
        except (LogTruncatedError, ThrottledError):
            # fetch() meets it again, once what was read before has been handed over.
            return
        except PykafkaError as error:
            if not error.retriable:
                raise
            # fetch() asks again, and gives up when it is time to.
            self.partition.forget()
            logger.info("%s; trying again", error)

    def progressed(self) -> None:
        """
        Note that records came, or that something else has moved the reader on.
        """
        self._since_progress = None
        self._trouble = None
        self._throttled_seconds = 0.0

    def bear(self, offset: int, why: str, *, pause: bool = True) -> None:
        """
        Wait before an offset is asked for again, since an answer brought the reader no further.

        Raises :class:`StalledReadError` once the time for progress is over.
        """
        patience = self._patience()
        awaited = self._awaited(offset)
        stalled = (
            f"did not get {awaited} within {self.timeout_ms} ms, and nothing says that there is "
            f"none: {why}{'' if why.endswith('?') else '.'}"
        )
        self._trouble = StalledReadError(
            f"{stalled} Set kafkaConsumer.pollTimeoutMs to wait longer"
        )
        # For callers whose time is another setting's.
        self._trouble.__cause__ = TimeoutExceededError(stalled)
        patience.tell_once(awaited, why)
        if patience.deadline.expired or (pause and not patience.pause_stalled()):
            raise self._trouble

    def _check_throttle(self, error: ThrottledError, awaited: str) -> None:
        self._throttled_seconds += error.seconds
        if self._throttled_seconds <= self.max_throttle_seconds:
            return
        msg = (
            f"did not get {awaited}: throttled for {error.seconds * 1000:.0f} ms by broker "
            f"{error.node} (quota), and for {self._throttled_seconds:.0f} s in all since the last "
            f"record, the limit being {self.max_throttle_seconds:.0f} s; raise the quota of this "
            "user or client id (consumer_byte_rate, request_percentage)"
        )
        raise StalledReadError(msg)

    def _awaited(self, offset: int) -> str:
        return f"a record of {self.partition.tp} at offset {offset}"

    def _read_watermarks(self, request: Callable[[Deadline], Watermarks]) -> Watermarks:
        patience = self._new_patience()
        while True:
            try:
                return request(patience.deadline)
            except PykafkaError as error:
                self._recover(error, f"the offsets of {self.partition.tp}", patience)

    def _patience(self) -> _Patience:
        """
        Return that of the present stretch without progress.
        """
        if self._since_progress is None:
            self._since_progress = self._new_patience()
        return self._since_progress

    def _new_patience(self) -> _Patience:
        return _Patience(self.timeout_ms / 1000, self.partition.cluster.config)

    def _recover(self, error: PykafkaError, awaited: str, patience: _Patience) -> None:
        if not error.retriable:
            raise error
        self.partition.forget()
        late = patience.deadline.expired
        # The last try is often cut off by the deadline itself, which says nothing of the cause.
        if self._trouble is None or not late:
            self._trouble = error
        if late:
            if isinstance(self._trouble, StalledReadError):
                raise self._trouble from error
            msg = (
                f"did not get {awaited} within {self.timeout_ms} ms: {self._trouble}. "
                "Set kafkaConsumer.pollTimeoutMs to wait longer"
            )
            raise TimeoutExceededError(msg) from error
        logger.info("%s; trying again", error)
        patience.tell_once(awaited, str(error))
        patience.pause(error)
