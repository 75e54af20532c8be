"""
Records of a stream that are gone before they were read: told, counted, or refused.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyspark_pykafka.errors import DataLossError
from pyspark_pykafka.offsets import Offsets, describe
from pyspark_pykafka.planner import PARTITIONS_DELETED, Loss, StreamPlan

if TYPE_CHECKING:
    from pyspark_pykafka.borders import OffsetSource
    from pyspark_pykafka.offsets import StreamOffset
    from pyspark_pykafka.options import SourceOptions

logger = logging.getLogger("pyspark_pykafka")


class Losses:
    """
    What one query has lost since it was started, by partition, and what becomes of more.
    """

    def __init__(self, options: SourceOptions, brokers: OffsetSource) -> None:
        self._options = options
        self._brokers = brokers
        self.counted: Offsets = {}

    def report(self, plan: StreamPlan) -> None:
        """
        Log what a plan leaves out, or raise :class:`DataLossError` where losses are not allowed.
        """
        if plan.left_out:
            logger.info(
                "the options do not ask for %s any more; no more is read of them",
                describe(plan.left_out),
            )
        for loss in plan.losses:
            if self._options.fail_on_data_loss:
                text = f"{loss.explanation}. Set failOnDataLoss to false to go on without them"
                raise DataLossError(self._condition(loss), text)
            logger.warning("[%s] %s; going on", self._condition(loss), loss.explanation)

    def _condition(self, loss: Loss) -> str:
        # As the JVM connector tells the two apart.
        if loss.condition == PARTITIONS_DELETED and self._options.kafka.get("group.id"):
            return f"{PARTITIONS_DELETED}_AND_GROUP_ID_CONFIG_PRESENT"
        return loss.condition

    def count(self, stands: StreamOffset, end: StreamOffset) -> None:
        """
        Count what aged out before it can be read, which tasks only skip.
        """
        remade = end.remade_topics(stands)
        begin = {
            tp: at
            for tp, at in stands.offsets.items()
            if at < end.offsets.get(tp, at) and tp.topic not in remade
        }
        for tp, first in sorted(self._brokers.earliest(sorted(begin)).items()):
            gone = min(first, end.offsets[tp]) - begin[tp]
            if gone > 0:
                self.counted[tp] = self.counted.get(tp, 0) + gone
                logger.warning(
                    "%s: %d offsets from %d on have aged out before they were read, %d since the "
                    "query was started; going on",
                    *(tp, gone, begin[tp], self.counted[tp]),
                )
