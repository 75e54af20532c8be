"""
How long a ledger is waited for: as long as a writer may be blocked; what passes is no lost data.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, TypeVar

from pyspark_pykafka.errors import (
    BrokerUnavailableError,
    DataLossError,
    ExactlyOnceError,
    PykafkaError,
    TimeoutExceededError,
    UnknownTopicError,
)
from pyspark_pykafka.retry import Backoff, Deadline

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_pykafka.engines.wire.network.cluster import Cluster
    from pyspark_pykafka.offsets import OffsetRange, TopicPartition
    from pyspark_pykafka.settings.wire_config import ProducerConfig

T = TypeVar("T")

logger = logging.getLogger("pyspark_pykafka")

_LEAST_PAUSE = 0.02
# One look may take so long, and then another broker may lead.
_LOOK_SECONDS, _LEAST_LOOK_SECONDS = 10.0, 1.0
# A wait that is longer is told.
_LONG_SECONDS = 5.0


def retry_ledger_read(
    tp: TopicPartition, look: Callable[[float], T], cluster: Cluster, config: ProducerConfig
) -> T:
    """
    Look until it succeeds, for ``kafka.max.block.ms``; ``look`` gets how many seconds it may take.

    Raises :class:`TimeoutExceededError` when time is over, and :class:`ExactlyOnceError` if no
    broker has known the topic all the time.
    """
    deadline = Deadline.after(config.block_seconds)
    backoff = Backoff(_LEAST_PAUSE, config.direct.retry_backoff_max_seconds)
    telling = Deadline.after(_LONG_SECONDS)
    trouble: BaseException | None = None
    missing, told = True, False
    while True:
        try:
            return look(max(deadline.remaining(_LOOK_SECONDS), _LEAST_LOOK_SECONDS))
        except PykafkaError as error:
            if not error.retriable:
                raise
            # The last look is often cut off by the deadline, which says nothing of the cause.
            if trouble is None or not deadline.expired:
                trouble = _cause(error)
                missing = missing and isinstance(trouble, UnknownTopicError)
            if deadline.expired:
                raise _given_up(tp, trouble, config, missing=missing) from error
            if telling.expired and not told:
                told = True
                logger.info("waiting for the ledger %s: %s", tp, trouble)
            cluster.invalidate_metadata(tp.topic)
            time.sleep(deadline.remaining(max_seconds=backoff.next_pause()))


def missing_entries_error(wanted: OffsetRange, low: int, error: DataLossError) -> PykafkaError:
    """
    Return the error for entries that are not where they were seen; ``low`` is the log start now.

    Another leader may have them, or know of them a moment later; what lies before the log start is
    gone for good, and a ledger is never made to forget.
    """
    if low <= wanted.start:
        return BrokerUnavailableError(error.explanation)
    msg = (
        f"the ledger {wanted.tp} begins at offset {low}, and had entries from {wanted.start} on: "
        "somebody has deleted them, or its cleanup.policy is not compact; what was committed "
        "cannot be told any more. Set it to compact; if the rows of the last micro-batch may be "
        "repeated, run: pykafka transactions release"
    )
    return ExactlyOnceError("EXACTLY_ONCE_LEDGER_LOST", msg)


def _given_up(
    tp: TopicPartition, trouble: BaseException, config: ProducerConfig, *, missing: bool
) -> PykafkaError:
    seconds = f"{config.block_seconds * 1000:.0f} ms (kafka.max.block.ms)"
    if not missing:
        msg = f"the ledger {tp} could not be read within {seconds}: {trouble}"
        return TimeoutExceededError(msg)
    msg = (
        f"the brokers have not had the ledger {tp.topic} for {seconds}: it was deleted; what was "
        "committed cannot be told any more. Restore it; or, if the rows of the last micro-batch "
        "may be repeated, run: pykafka transactions release"
    )
    return ExactlyOnceError("EXACTLY_ONCE_LEDGER_LOST", msg)


def _cause(error: PykafkaError) -> BaseException:
    """
    Return what is behind a time-out of the reading path, which names settings of readers.
    """
    inner = error.__cause__
    return inner if isinstance(error, TimeoutExceededError) and inner is not None else error
