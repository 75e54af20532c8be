"""
The topics that a pattern selects: neither Kafka's internal topics, nor ledgers of exactly-once
streams.

A query that reads a ledger by accident reads entries instead of records; two queries whose patterns
match each other's ledgers would keep each other busy for ever.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyspark_pykafka.engines.error_codes import KafkaErrorCode
from pyspark_pykafka.engines.transaction_contract import LEDGER_SUFFIX
from pyspark_pykafka.errors import AuthorizationError, KafkaClientError, UnknownTopicError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_pykafka.engines.metadata_contract import MetadataBackend, Topic

logger = logging.getLogger("pyspark_pykafka")

_POLICY, _COMPACT = "cleanup.policy", "compact"


class PatternTopics:
    """
    Leaves out topics that only a name selects; the settings of each are read once.
    """

    def __init__(self, backend: MetadataBackend) -> None:
        self._backend = backend
        self._is_ledger: dict[tuple[str, str | None], bool] = {}

    def select(self, matching: Mapping[str, Topic]) -> dict[str, Topic]:
        """
        Return the topics that a pattern selects, out of those that match it.
        """
        return {
            name: topic
            for name, topic in matching.items()
            if not topic.is_internal and not self._is_ledger_topic(name, topic)
        }

    def _is_ledger_topic(self, name: str, topic: Topic) -> bool:
        """
        Return whether a topic is a ledger: compacted, with one partition, and named like one.

        A topic with such a name may also be a user's.
        """
        if not name.endswith(LEDGER_SUFFIX) or len(topic.partitions) != 1:
            return False
        identity = name, topic.id
        if identity not in self._is_ledger:
            try:
                self._is_ledger[identity] = self._is_compacted(name)
            except UnknownTopicError:
                # Not False: records of a ledger that one plan selects are lost data in the next.
                return True
        return self._is_ledger[identity]

    def _is_compacted(self, name: str) -> bool:
        """
        Return whether a topic is compacted, or true without the permission to know it.
        """
        try:
            is_compacted = self._backend.topic_setting(name, _POLICY) == _COMPACT
        except (AuthorizationError, KafkaClientError) as error:
            if isinstance(error, KafkaClientError) and not _is_unsupported(error):
                raise
            logger.warning(
                "subscribePattern does not select the topic %s, which has the name of a ledger of "
                "an exactly-once stream: %s. Allow DescribeConfigs on it, or name it in the option "
                "subscribe",
                *(name, error),
            )
            return True
        if is_compacted:
            # A warning: a topic of the user's may look like a ledger.
            logger.warning(
                "subscribePattern does not select the topic %s: it is compacted and has one "
                "partition, as the ledger of an exactly-once stream, and the name of one. To read "
                "it all the same, name it in the option subscribe",
                name,
            )
        return is_compacted


def _is_unsupported(error: KafkaClientError) -> bool:
    return error.code == KafkaErrorCode.UNSUPPORTED_VERSION
