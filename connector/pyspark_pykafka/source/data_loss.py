"""
Reports records of a stream that were lost unread: raises, or logs and counts them.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Protocol

from pyspark_pykafka.engines.log_truncation import (
    LOG_TRUNCATED,
    Truncation,
    describe_truncations,
    epochs_to_check,
    find_truncations,
)
from pyspark_pykafka.errors import DataLossError, OffsetsError
from pyspark_pykafka.offsets import Offsets, format_partitions
from pyspark_pykafka.source.offset_limits import OffsetSource
from pyspark_pykafka.source.planner import (
    PARTITIONS_DELETED,
    DataLoss,
    StreamPlan,
    offset_change_losses,
)
from pyspark_pykafka.source.subscription import describe, selector

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark_pykafka.offsets import StreamOffset, TopicPartition
    from pyspark_pykafka.options import SourceOptions

logger = logging.getLogger("pyspark_pykafka")


class OffsetLookup(OffsetSource, Protocol):
    """
    An :class:`OffsetSource` that also knows the end offsets of leader epochs.
    """

    def offsets_for_leader_epochs(self, epochs: Mapping[TopicPartition, int]) -> Offsets:
        """
        Return the offset after the last record of each epoch; -1 if the leader does not know it.

        Partitions are left out if their leader or the engine does not support the request.
        """


class DataLossReporter:
    """
    Raises or logs the data loss of one query, depending on ``failOnDataLoss``, and counts the
    losses and the lost offsets.
    """

    def __init__(self, options: SourceOptions, lookup: OffsetLookup) -> None:
        self._options = options
        self._lookup = lookup
        #: The number of offsets lost since the query was started, by partition.
        self.lost_offsets: Offsets = {}
        #: The number of other losses since the query was started, by condition. Their offsets are
        #: not counted: the number of unread records in a deleted topic or partition is unknown.
        self.losses: Counter[str] = Counter()
        self._last_losses: tuple[DataLoss, ...] = ()
        self._checked: dict[TopicPartition, tuple[int, int]] = {}
        self._has_logged_other_topics = False

    def report_plan(self, plan: StreamPlan) -> None:
        """
        Log and count the losses of a plan, or raise :class:`DataLossError` for the first one if
        ``failOnDataLoss`` is true.
        """
        if plan.unsubscribed:
            logger.warning(
                "the options no longer subscribe to %s; these partitions are no longer read",
                format_partitions(plan.unsubscribed),
            )
        self._report(plan.losses)
        # Spark can plan one batch several times.
        if plan.losses != self._last_losses:
            self.losses.update(self._condition(loss) for loss in plan.losses)
        self._last_losses = plan.losses

    def check_positions(self, start: StreamOffset, latest: StreamOffset) -> None:
        """
        Raise :class:`DataLossError` if a log ends before its start offset and ``failOnDataLoss`` is
        true.

        Spark calls latestOffset before it writes the end of the batch into the checkpoint. An error
        while planning would be too late: each restart would plan the same batch again, even after
        the log has recovered.
        """
        if self._options.fail_on_data_loss:
            self._report(offset_change_losses(start, latest))

    def _report(self, losses: Iterable[DataLoss]) -> None:
        for loss in losses:
            if self._options.fail_on_data_loss:
                text = f"{loss.explanation}. Set failOnDataLoss to false to continue without them"
                raise DataLossError(self._condition(loss), text)
            logger.warning("[%s] %s; continuing", self._condition(loss), loss.explanation)

    def check_topics(self, position: StreamOffset) -> None:
        """
        Raise :class:`OffsetsError` if the options select none of the partitions of a position in
        the checkpoint; if ``failOnDataLoss`` is false, only log that.

        Partitions count whether or not they exist. The topics can differ because Spark matches the
        sources of a query with the offsets in the checkpoint only by their order.
        """
        tps, strategy = position.offsets, self._options.strategy
        if not tps or any(map(selector(strategy), tps)):
            return
        text = (
            f"the checkpoint has offsets of {format_partitions(tps)}, and the options have "
            f"{describe(strategy)}: they share no partition, so the query would start anew "
            "on the partitions of the options, and stop reading those of the checkpoint"
        )
        if self._options.fail_on_data_loss:
            msg = (
                f"{text}. Were the sources of a union or join reordered? Restore their order, or "
                "start with a new checkpoint. To read other topics from now on, set failOnDataLoss "
                "to false until the first batch has finished"
            )
            raise OffsetsError("CHECKPOINT_OF_OTHER_TOPICS", msg)
        if not self._has_logged_other_topics:
            self._has_logged_other_topics = True
            logger.warning("%s; continuing, since failOnDataLoss is false", text)

    def _condition(self, loss: DataLoss) -> str:
        # The JVM connector has two conditions for deleted partitions, too.
        if loss.condition == PARTITIONS_DELETED and self._options.kafka.get("group.id"):
            return f"{PARTITIONS_DELETED}_AND_GROUP_ID_CONFIG_PRESENT"
        return loss.condition

    def check_truncation(self, start: StreamOffset, latest: StreamOffset) -> None:
        """
        Log and count truncated offsets before the start offsets, whether or not there is new data.

        Raises :class:`DataLossError` if ``failOnDataLoss`` is true. Requests are sent only for
        partitions whose leader epoch has changed, once for each change.
        """
        epochs = {
            tp: checked
            for tp, epoch in epochs_to_check(start, latest).items()
            if (checked := self._last_checked_epoch(tp, start, epoch)) < latest.epochs[tp]
        }
        if not epochs:
            return
        end_offsets = self._lookup.offsets_for_leader_epochs(epochs)
        truncations = find_truncations(start, epochs, end_offsets)
        if truncations:
            self._report_truncations(truncations)
        # Partitions without a response are checked again with the next batch.
        for tp in end_offsets:
            self._checked[tp] = (start.offsets[tp], latest.epochs[tp])

    def _last_checked_epoch(self, tp: TopicPartition, start: StreamOffset, epoch: int) -> int:
        """
        Return the last leader epoch for which truncation before the start offset was checked.

        The start offset keeps its leader epoch as long as there is no new data.
        """
        offset, checked = self._checked.get(tp, (None, epoch))
        return max(epoch, checked) if offset == start.offsets[tp] else epoch

    def _report_truncations(self, truncations: Sequence[Truncation]) -> None:
        text = describe_truncations(truncations)
        if self._options.fail_on_data_loss:
            msg = f"{text}. Set failOnDataLoss to false to continue without them"
            raise DataLossError(LOG_TRUNCATED, msg)
        for truncation in truncations:
            self._count(truncation.tp, truncation.lost)
        logger.warning("[%s] %s; continuing", LOG_TRUNCATED, text)

    def count_aged_out(self, start: StreamOffset, end: StreamOffset) -> None:
        """
        Count offsets of the batch that retention has already deleted; tasks only skip them.
        """
        recreated = end.recreated_topics(start)
        starts = {
            tp: offset
            for tp, offset in start.offsets.items()
            if offset < end.offsets.get(tp, offset) and tp.topic not in recreated
        }
        for tp, log_start in sorted(self._lookup.log_start_offsets(sorted(starts)).items()):
            lost = min(log_start, end.offsets[tp]) - starts[tp]
            if lost > 0:
                self._count(tp, lost)
                logger.warning(
                    "%s: %d offsets from %d on were deleted by retention before they were read, "
                    "%d since the query was started; continuing",
                    *(tp, lost, starts[tp], self.lost_offsets[tp]),
                )

    def _count(self, tp: TopicPartition, lost: int) -> None:
        self.lost_offsets[tp] = self.lost_offsets.get(tp, 0) + lost
