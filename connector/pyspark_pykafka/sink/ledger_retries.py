"""
Retries for reading a ledger, for ``kafka.max.block.ms``: transient failures are not data loss.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar

from pyspark_pykafka.errors import (
    BrokerUnavailableError,
    DataLossError,
    ExactlyOnceError,
    PykafkaError,
    TimeoutExceededError,
    UnknownTopicError,
)
from pyspark_pykafka.retry import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_pykafka.engines.wire.network.cluster import Cluster
    from pyspark_pykafka.offsets import OffsetRange, TopicPartition
    from pyspark_pykafka.settings.wire_config import ProducerConfig

T = TypeVar("T")

logger = logging.getLogger("pyspark_pykafka")

_INITIAL_BACKOFF_SECONDS = 0.02
# The timeout of one attempt; after it another broker may lead.
_MAX_ATTEMPT_SECONDS, _MIN_ATTEMPT_SECONDS = 10.0, 1.0
# A longer wait is logged.
_LOG_AFTER_SECONDS = 5.0


def retry_ledger_read(
    tp: TopicPartition, read: Callable[[float], T], cluster: Cluster, config: ProducerConfig
) -> T:
    """
    Call ``read`` until it succeeds, for at most ``kafka.max.block.ms``.

    ``read`` is called with the timeout of the attempt in seconds. Raises
    :class:`TimeoutExceededError` after that time, or :class:`ExactlyOnceError` if no broker has
    known the topic in all that time.
    """
    deadline = cluster.new_deadline(config.block_seconds)
    backoff = Backoff(_INITIAL_BACKOFF_SECONDS, config.wire.retry_backoff_max_seconds)
    log_at = cluster.new_deadline(_LOG_AFTER_SECONDS)
    last_error: BaseException | None = None
    missing, logged = True, False
    while True:
        try:
            return read(max(deadline.remaining(_MAX_ATTEMPT_SECONDS), _MIN_ATTEMPT_SECONDS))
        except PykafkaError as error:
            if not error.retriable:
                raise
            # The deadline often cuts off the last attempt, and that error would hide the cause.
            if last_error is None or not deadline.expired:
                last_error = _cause(error)
                missing = missing and isinstance(last_error, UnknownTopicError)
            if deadline.expired:
                raise _deadline_error(tp, last_error, config, missing=missing) from error
            if log_at.expired and not logged:
                logged = True
                logger.info("waiting for the ledger %s: %s", tp, last_error)
            cluster.invalidate_metadata(tp.topic)
            deadline.pause(backoff.next_pause())


def missing_entries_error(
    requested: OffsetRange, log_start: int, error: DataLossError
) -> PykafkaError:
    """
    Return the error for entries that are missing, given the current log start.

    The error is retriable for entries after the log start: another leader may have them, or the
    same leader may have them a moment later. Entries before the log start are lost, which cannot
    happen with a ledger's configuration.
    """
    if log_start <= requested.start:
        return BrokerUnavailableError(error.explanation)
    msg = (
        f"the ledger {requested.tp} begins at offset {log_start}, and had entries from "
        f"{requested.start} on: they were deleted, or its cleanup.policy is not compact; it can no "
        "longer be known which rows were committed. Set cleanup.policy to compact; if the rows of "
        "the last micro-batch may be repeated, run: pykafka transactions release"
    )
    return ExactlyOnceError("EXACTLY_ONCE_LEDGER_LOST", msg)


def _deadline_error(
    tp: TopicPartition, last_error: BaseException, config: ProducerConfig, *, missing: bool
) -> PykafkaError:
    seconds = f"{config.block_seconds * 1000:.0f} ms (kafka.max.block.ms)"
    if not missing:
        msg = f"the ledger {tp} could not be read within {seconds}: {last_error}"
        return TimeoutExceededError(msg)
    msg = (
        f"no broker has known the ledger {tp.topic} for {seconds}: it was deleted; it can no "
        "longer be known which rows were committed. Restore it; or, if the rows of the last "
        "micro-batch may be repeated, run: pykafka transactions release"
    )
    return ExactlyOnceError("EXACTLY_ONCE_LEDGER_LOST", msg)


def _cause(error: PykafkaError) -> BaseException:
    """
    Return the cause of a timeout, since the timeout's own message names settings of reads.
    """
    inner = error.__cause__
    return inner if isinstance(error, TimeoutExceededError) and inner is not None else error
