"""
Which partitions the options of a query select, whether or not they exist.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyspark_pykafka.offsets import format_partitions
from pyspark_pykafka.options import Assign, Subscribe, SubscribePattern

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_pykafka.offsets import TopicPartition
    from pyspark_pykafka.options import Strategy


def selector(strategy: Strategy) -> Callable[[TopicPartition], bool]:
    """
    Return a function that decides whether a strategy selects a partition.

    It takes the same time for each partition, however many of them the strategy names.
    """
    if isinstance(strategy, Assign):
        return frozenset(strategy.partitions).__contains__
    if isinstance(strategy, Subscribe):
        topics = frozenset(strategy.topics)
        return lambda tp: tp.topic in topics
    assert isinstance(strategy, SubscribePattern)
    search = re.compile(strategy.pattern).search
    return lambda tp: search(tp.topic) is not None


def describe(strategy: Strategy) -> str:
    """
    Return the option that selects partitions, for a message.
    """
    if isinstance(strategy, Assign):
        return f"assign {format_partitions(strategy.partitions)}"
    if isinstance(strategy, Subscribe):
        return f"subscribe {','.join(strategy.topics)}"
    assert isinstance(strategy, SubscribePattern)
    return f"subscribePattern {strategy.pattern}"


def is_single_topic(strategy: Strategy) -> bool:
    """
    Whether a strategy names one topic only, so that partition and offset identify a record.
    """
    if isinstance(strategy, Subscribe):
        return len(set(strategy.topics)) == 1
    return isinstance(strategy, Assign) and len({tp.topic for tp in strategy.partitions}) == 1
