"""
Asking a broker again after errors that pass, until the time for progress is over.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark_pykafka.errors import (
    BrokerUnavailableError,
    PykafkaError,
    TimeoutExceededError,
    UnknownTopicError,
)
from pyspark_pykafka.retry import Backoff, Deadline
from pyspark_pykafka.wire.log_check import LogTruncatedError

if TYPE_CHECKING:
    from pyspark_pykafka.client import DirectConfig
    from pyspark_pykafka.wire.partition import Fetched, PartitionClient

logger = logging.getLogger("pyspark_pykafka")

# Brokers learn of a new topic one after another; one that is still missing then is gone.
_MISSING_SECONDS = 2.0


class _Patience:
    """
    How long to go on trying, and how long to wait in between: after a lost connection, and else.
    """

    def __init__(self, seconds: float, config: DirectConfig) -> None:
        self.deadline = Deadline.after(seconds)
        self._reconnect = Backoff(
            config.reconnect_backoff_seconds, config.reconnect_backoff_max_seconds
        )
        self._retry = Backoff(config.fetch_error_backoff_seconds, config.retry_backoff_max_seconds)

    def pause(self, error: PykafkaError) -> None:
        backoff = self._reconnect if isinstance(error, BrokerUnavailableError) else self._retry
        time.sleep(self.deadline.remaining(at_most=backoff.next_pause()))


@dataclass(slots=True)
class Asking:
    """
    Fetches from one partition; each answer has ``timeout_ms`` to arrive, whatever happens.
    """

    partition: PartitionClient
    timeout_ms: int
    _trouble: PykafkaError | None = field(init=False, default=None)

    def borders(self) -> tuple[int, int]:
        """
        Return the log start and the end of what may be read.
        """
        patience = self._patience()
        while True:
            try:
                return self.partition.borders(patience.deadline)
            except PykafkaError as error:
                self._recover(error, f"the offsets of {self.partition.tp}", patience)

    def fetch(self, offset: int, size: int, wait_ms: int) -> Fetched | None:
        """
        Return the answer for ``offset``, or None if the topic or partition is gone.

        Raises :class:`~pyspark_pykafka.wire.partition.OutOfRangeError`, or
        :class:`~pyspark_pykafka.wire.log_check.LogTruncatedError`.
        """
        awaited = f"a record of {self.partition.tp} at offset {offset}"
        patience = self._patience()
        missing_until = Deadline.after(_MISSING_SECONDS)
        while True:
            try:
                if self.partition.asked != offset:
                    self.partition.ask(offset, size, wait_ms, patience.deadline)
                answer = self.partition.answer(patience.deadline)
            except UnknownTopicError as error:
                if missing_until.expired:
                    return None
                self._recover(error, awaited, patience)
            except PykafkaError as error:
                missing_until = Deadline.after(_MISSING_SECONDS)
                self._recover(error, awaited, patience)
            else:
                self._trouble = None
                return answer

    def ahead(self, offset: int, size: int, wait_ms: int) -> None:
        """
        Send for the next records while the last are decoded, if the broker is well.
        """
        try:
            self.partition.ask(offset, size, wait_ms, self._patience().deadline)
        except LogTruncatedError:
            # fetch() meets it again, once what was read before has been handed over.
            return
        except PykafkaError as error:
            if not error.retriable:
                raise
            # fetch() asks again, and gives up when it is time to.
            self.partition.forget()
            logger.info("%s; trying again", error)

    def _patience(self) -> _Patience:
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
            msg = (
                f"did not get {awaited} within {self.timeout_ms} ms: {self._trouble}. "
                "Set kafkaConsumer.pollTimeoutMs to wait longer"
            )
            raise TimeoutExceededError(msg) from error
        logger.info("%s; trying again", error)
        patience.pause(error)
