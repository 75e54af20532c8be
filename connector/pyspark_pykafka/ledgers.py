"""
Making the topic that an exactly-once stream keeps its ledger in, where there is none yet.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import TYPE_CHECKING

from pyspark_pykafka.engines import transactions_of
from pyspark_pykafka.errors import UnknownTopicError
from pyspark_pykafka.retry import Backoff, Deadline, retrying_until

if TYPE_CHECKING:
    from pyspark_pykafka.settings import KafkaSettings

logger = logging.getLogger("pyspark_pykafka")

#: One partition, for its order; compacted, so that it stays small and never forgets a last entry.
#: The rest lets that happen soon, since a ledger grows with every micro-batch.
CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": str(16 * 2**20),
    "segment.ms": str(24 * 3_600_000),
    "min.cleanable.dirty.ratio": "0.1",
}

_LEAST_PAUSE, _MOST_PAUSE = 0.02, 0.5


# Asked by every task; once there is one, it stays.
@lru_cache(maxsize=16)
def make_ledger(kafka: KafkaSettings, topic: str) -> None:
    """
    Return once the brokers have the topic, made if it was missing.

    Raises :class:`AuthorizationError` if they do not let us, and the other errors of
    :mod:`pyspark_pykafka.errors`.
    """
    with transactions_of(kafka) as transactions:
        cluster, seconds = transactions.cluster, transactions.config.block_seconds

        def find() -> None:
            cluster.forget(topic)
            cluster.partitions(topic, Deadline.after(transactions.config.request_seconds))

        try:
            find()
        except UnknownTopicError:
            _make(kafka, topic)
            backoff = Backoff(_LEAST_PAUSE, _MOST_PAUSE)
            retrying_until(find, Deadline.after(seconds), backoff)


def _make(kafka: KafkaSettings, topic: str) -> None:
    # Once in the life of a query, and an import that every other task can do without.
    from pyspark_pykafka.admin import Admin

    doing = f"making the topic {topic}, the ledger of an exactly-once stream"
    Admin(kafka).make_topic(topic, CONFIG, doing)
    logger.info("made the topic %s, the ledger of an exactly-once stream", topic)
