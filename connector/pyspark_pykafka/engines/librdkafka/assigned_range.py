"""
A range of offsets assigned to librdkafka's consumer: the position in it, and its lost offsets.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from confluent_kafka import TopicPartition as Position

from pyspark_pykafka.engines.contract import FetchSettings, Watermarks, report_data_loss
from pyspark_pykafka.engines.librdkafka.client import Client, request_watermarks
from pyspark_pykafka.offsets import NO_EPOCH

if TYPE_CHECKING:
    from pyspark_pykafka.offsets import OffsetRange


@dataclass(slots=True)
class AssignedRange:
    """
    The state of one read, which has its client to itself.
    """

    client: Client
    settings: FetchSettings
    range: OffsetRange
    #: Whether a loss of the rest counts as confirmed by other brokers.
    is_loss_confirmed: bool = True
    #: Why the rest of the range seems to be lost, if other brokers have to confirm the loss.
    unconfirmed_loss: str | None = field(init=False, default=None)
    #: The next offset to read.
    position: int = field(init=False)
    done: bool = field(init=False)
    #: The first offset without a record since the last :meth:`check_gap`, or None.
    first_gap: int | None = field(init=False, default=None)
    #: Whether the start offset is used without the leader's check for a truncated log.
    unchecked: bool = field(init=False, default=False)
    #: The number of assignments so far; messages polled before the latest one are stale.
    assignments: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.position = self.range.start
        self.done = self.range.size == 0

    @property
    def rest(self) -> OffsetRange:
        """
        The range from the position on.
        """
        if self.position == self.range.start:
            return self.range
        return replace(self.range, start=self.position, start_epoch=NO_EPOCH)

    def assign(self) -> None:
        """
        Let the consumer fetch from the position.
        """
        tp = self.range.tp
        self.assignments += 1
        # With an epoch librdkafka lets the leader check for a truncated log (KIP-320).
        is_checked = self.position == self.range.start and not self.unchecked
        epoch = self.range.start_epoch if is_checked else NO_EPOCH
        self.client.consumer.assign(
            [Position(tp.topic, tp.partition, self.position, leader_epoch=epoch)]
        )

    def move_to(self, position: int) -> None:
        """
        Advance to a position, which may be beyond the range.
        """
        self.position = position
        self.done = position >= self.range.end

    def watermarks(self) -> Watermarks:
        """
        Request the watermarks of the partition's log.
        """
        return request_watermarks(self.client, self.range, self.settings)

    def check_gap(self, gap: int) -> None:
        """
        Report the gap as data loss if retention caused it, and not compaction or a transaction.

        The log start offset only grows, so one request covers all gaps since the first.
        """
        # Invariant R6 (gap).
        self.first_gap = None
        log_start = self.watermarks().log_start
        if log_start > gap:
            self.lose(f"the log now starts at offset {log_start}", self.position, since=gap)

    def lose(self, reason: str, resume_at: int, since: int | None = None) -> None:
        """
        Report the offsets from the position, or from ``since``, as lost, and skip them.
        """
        start = self.position if since is None else since
        end = min(resume_at, self.range.end)
        fail = self.settings.fail_on_data_loss
        report_data_loss(self.range, start, end, reason, fail=fail)
        self.move_to(max(self.position, end))

    def lose_rest(self, reason: str) -> None:
        """
        Report the rest of the range as lost, or end the read if other brokers must confirm that.
        """
        # Invariant R18 (no single broker).
        if self.is_loss_confirmed:
            self.lose(reason, self.range.end)
        else:
            self.unconfirmed_loss, self.done = reason, True

    def report_unconfirmed_loss(self) -> None:
        """
        Report the rest of the range as lost: no other broker can confirm it.
        """
        self.lose(self.unconfirmed_loss or "", self.range.end)
