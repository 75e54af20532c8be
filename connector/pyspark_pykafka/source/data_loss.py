"""
Records of a stream that are gone before they were read: told, counted, or refused.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from pyspark_pykafka.engines.log_truncation import (
    LOG_TRUNCATED,
    Truncation,
    describe_truncations,
    epochs_to_check,
    find_truncations,
)
from pyspark_pykafka.errors import DataLossError
from pyspark_pykafka.offsets import Offsets, format_partitions
from pyspark_pykafka.source.offset_limits import OffsetSource
from pyspark_pykafka.source.planner import PARTITIONS_DELETED, DataLoss, StreamPlan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark_pykafka.offsets import StreamOffset, TopicPartition
    from pyspark_pykafka.options import SourceOptions

logger = logging.getLogger("pyspark_pykafka")


class OffsetLookup(OffsetSource, Protocol):
    """
    Whoever knows where the records of leader epochs end, too.
    """

    def offsets_for_leader_epochs(self, epochs: Mapping[TopicPartition, int]) -> Offsets:
        """
        Return the offset behind the last record up to each epoch; -1 where its leader cannot tell.

        Partitions that nobody can be asked about are left out.
        """


class DataLossReporter:
    """
    What one query has lost since it was started, by partition, and what becomes of more.
    """

    def __init__(self, options: SourceOptions, brokers: OffsetLookup) -> None:
        self._options = options
        self._brokers = brokers
        self.counted: Offsets = {}
        self._checked: dict[TopicPartition, tuple[int, int]] = {}

    def report(self, plan: StreamPlan) -> None:
        """
        Log what a plan leaves out, or raise :class:`DataLossError` where losses are not allowed.
        """
        if plan.unsubscribed:
            logger.info(
                "the options do not ask for %s any more; no more is read of them",
                format_partitions(plan.unsubscribed),
            )
        for loss in plan.losses:
            if self._options.fail_on_data_loss:
                text = f"{loss.explanation}. Set failOnDataLoss to false to go on without them"
                raise DataLossError(self._condition(loss), text)
            logger.warning("[%s] %s; going on", self._condition(loss), loss.explanation)

    def _condition(self, loss: DataLoss) -> str:
        # As the JVM connector tells the two apart.
        if loss.condition == PARTITIONS_DELETED and self._options.kafka.get("group.id"):
            return f"{PARTITIONS_DELETED}_AND_GROUP_ID_CONFIG_PRESENT"
        return loss.condition

    def check_truncation(self, stands: StreamOffset, latest: StreamOffset) -> None:
        """
        Log and count what was lost before the query's offsets, whether or not there is new data.

        Raises :class:`DataLossError` where losses are not allowed. Brokers are asked only about
        partitions whose leader epoch is another one than when they were seen, and once about each.
        """
        wanted = {
            tp: since
            for tp, epoch in epochs_to_check(stands, latest).items()
            if (since := self._accounted(tp, stands, epoch)) < latest.epochs[tp]
        }
        if not wanted:
            return
        ends = self._brokers.offsets_for_leader_epochs(wanted)
        found = find_truncations(stands, wanted, ends)
        if found:
            self._on_truncations(found)
        # Whoever could not be asked about is asked about again.
        for tp in ends:
            self._checked[tp] = (stands.offsets[tp], latest.epochs[tp])

    def _accounted(self, tp: TopicPartition, stands: StreamOffset, epoch: int) -> int:
        """
        Return the last leader epoch up to which what was lost before an offset is told already.

        The offset's own epoch stays as it is for as long as there is nothing new.
        """
        offset, checked = self._checked.get(tp, (None, epoch))
        return max(epoch, checked) if offset == stands.offsets[tp] else epoch

    def _on_truncations(self, found: Sequence[Truncation]) -> None:
        text = describe_truncations(found)
        if self._options.fail_on_data_loss:
            msg = f"{text}. Set failOnDataLoss to false to go on without them"
            raise DataLossError(LOG_TRUNCATED, msg)
        for each in found:
            self.counted[each.tp] = self.counted.get(each.tp, 0) + each.lost
        logger.warning("[%s] %s; going on", LOG_TRUNCATED, text)

    def count(self, stands: StreamOffset, end: StreamOffset) -> None:
        """
        Count what aged out before it can be read, which tasks only skip.
        """
        remade = end.recreated_topics(stands)
        begin = {
            tp: at
            for tp, at in stands.offsets.items()
            if at < end.offsets.get(tp, at) and tp.topic not in remade
        }
        for tp, first in sorted(self._brokers.log_start_offsets(sorted(begin)).items()):
            gone = min(first, end.offsets[tp]) - begin[tp]
            if gone > 0:
                self.counted[tp] = self.counted.get(tp, 0) + gone
                logger.warning(
                    "%s: %d offsets from %d on have aged out before they were read, %d since the "
                    "query was started; going on",
                    *(tp, gone, begin[tp], self.counted[tp]),
                )
