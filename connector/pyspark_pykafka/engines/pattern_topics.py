"""
The topics that a pattern selects: neither Kafka's internal topics, nor ledgers of exactly-once
streams.

A query that reads a ledger by accident reads entries instead of records; two queries whose patterns
match each other's ledgers would keep each other busy for ever.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyspark_pykafka.engines.error_mapping import are_settings_hidden
from pyspark_pykafka.engines.transaction_contract import LEDGER_SUFFIX
from pyspark_pykafka.errors import PykafkaError, UnknownTopicError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_pykafka.engines.metadata_contract import MetadataBackend, Topic

logger = logging.getLogger("pyspark_pykafka")

_POLICY, _COMPACT = "cleanup.policy", "compact"


class PatternTopics:
    """
    Leaves out the topics that can be selected only by name; reads the settings of each topic that
    looks like a ledger once.
    """

    def __init__(self, backend: MetadataBackend) -> None:
        self._backend = backend
        self._is_ledger: dict[tuple[str, str | None], bool] = {}

    def select(self, matching: Mapping[str, Topic]) -> dict[str, Topic]:
        """
        Return the topics that a pattern selects, out of those that match it.
        """
        topics = {name: topic for name, topic in matching.items() if not topic.is_internal}
        ledgers = self._ledgers(
            {name: topic for name, topic in topics.items() if _looks_like_ledger(name, topic)}
        )
        return {name: topic for name, topic in topics.items() if name not in ledgers}

    def _ledgers(self, candidates: Mapping[str, Topic]) -> set[str]:
        """
        Return the ledgers among the candidates; a user's topic may look like a ledger, too.

        One request reads the settings of all candidates that are new.
        """
        identities = {name: (name, topic.id) for name, topic in candidates.items()}
        new = [name for name, identity in identities.items() if identity not in self._is_ledger]
        policies = self._backend.topic_settings(new, _POLICY) if new else {}
        for name in new:
            policy = policies[name]
            if not isinstance(policy, UnknownTopicError):
                self._is_ledger[identities[name]] = _is_compacted(name, policy)
        # A topic that the broker does not know counts as a ledger until the next plan. Otherwise
        # one plan might select a ledger, and the next plan would report its records as lost.
        return {
            name for name, identity in identities.items() if self._is_ledger.get(identity, True)
        }


def _looks_like_ledger(name: str, topic: Topic) -> bool:
    """
    Return whether a topic has the name and the single partition of a ledger.
    """
    return name.endswith(LEDGER_SUFFIX) and len(topic.partitions) == 1


def _is_compacted(name: str, policy: str | PykafkaError) -> bool:
    """
    Return true, and log a warning, if a topic is compacted or its settings are hidden.
    """
    if isinstance(policy, PykafkaError):
        if not are_settings_hidden(policy):
            raise policy
        logger.warning(
            "subscribePattern does not select the topic %s, which has the name of a ledger of "
            "an exactly-once stream: %s. Allow DescribeConfigs on it, or name it in the option "
            "subscribe",
            *(name, policy),
        )
        return True
    if policy != _COMPACT:
        return False
    # A warning, since a user's own topic may look like a ledger.
    logger.warning(
        "subscribePattern does not select the topic %s: like the ledger of an exactly-once "
        "stream, it is compacted, has one partition, and its name ends in %s. To read it anyway, "
        "name it in the option subscribe",
        *(name, LEDGER_SUFFIX),
    )
    return True
