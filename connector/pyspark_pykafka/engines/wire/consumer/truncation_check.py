"""
Checks before each fetch that the log has not been truncated since the range was planned (KIP-320).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark_pykafka.engines.error_mapping import map_read_error_code
from pyspark_pykafka.engines.log_truncation import Truncation
from pyspark_pykafka.engines.wire.protocol.offset_for_leader_epoch import (
    OFFSET_FOR_LEADER_EPOCH,
    OffsetForLeaderPartition,
    offset_for_leader_epoch_request,
)
from pyspark_pykafka.errors import BrokerUnavailableError
from pyspark_pykafka.offsets import NO_EPOCH

if TYPE_CHECKING:
    from pyspark_pykafka.engines.wire.network.cluster import Cluster, Leader
    from pyspark_pykafka.offsets import TopicPartition
    from pyspark_pykafka.retry import Deadline


class LogTruncatedError(Exception):
    """
    The log has been truncated since the range was planned.
    """

    def __init__(self, truncation: Truncation) -> None:
        self.truncation = truncation
        super().__init__(truncation)


@dataclass(slots=True)
class TruncationCheck:
    """
    Asks the leader of each later epoch for the end offset of the epoch that was seen (KIP-320).

    ``seen_end`` is the offset up to which the log was seen, in leader epoch ``epoch``. Brokers
    reject a Fetch whose leader epoch differs from theirs, so one check before the first Fetch in
    each epoch ensures that records come from the log that was checked. A log is not truncated
    within a leader epoch, so no request is sent while the leader stays.
    """

    tp: TopicPartition
    seen_end: int
    epoch: int = NO_EPOCH
    _checked_epoch: int = field(init=False)

    def __post_init__(self) -> None:
        self._checked_epoch = self.epoch

    def record_end(self, end: int, epoch: int) -> None:
        """
        Record a leader's epoch and log end as seen, if the range was planned without an epoch.
        """
        if self.epoch == NO_EPOCH and end >= self.seen_end:
            self.epoch = self._checked_epoch = epoch

    def run(self, cluster: Cluster, leader: Leader, deadline: Deadline) -> None:
        """
        Check the log if the leader's epoch is later than the last one that was checked.

        Raises :class:`LogTruncatedError`, until :meth:`reset` is called, and
        :class:`BrokerUnavailableError` if the leader's metadata is older than the range.
        """
        if not self.seen_end or NO_EPOCH in {self.epoch, leader.epoch}:
            return
        if leader.epoch < self._checked_epoch:
            self._on_older_epoch(leader)
        if leader.epoch <= self._checked_epoch:
            return
        end = self._epoch_end(cluster, leader, deadline)
        if 0 <= end < self.seen_end:
            raise LogTruncatedError(Truncation(self.tp, self.seen_end, self.epoch, end))
        self._checked_epoch = leader.epoch

    def reset(self) -> None:
        """
        Accept the log as it is now; checks resume once a leader epoch has been recorded again.
        """
        self.epoch = self._checked_epoch = NO_EPOCH

    def _on_older_epoch(self, leader: Leader) -> None:
        # Without topic ids, a recreated topic looks the same: its epochs start again.
        if leader.topic_id is not None:
            msg = (
                f"{self.tp}: a broker that is behind the others returned leader epoch "
                f"{leader.epoch}, but epoch {self._checked_epoch} was seen before. Is it cut off "
                "from the other brokers?"
            )
            raise BrokerUnavailableError(msg)

    def _epoch_end(self, cluster: Cluster, leader: Leader, deadline: Deadline) -> int:
        """
        Return the end offset of the epoch that was seen, -1 if the broker cannot return it.
        """
        connection = cluster.connection(leader.node, deadline)
        if not connection.supports(OFFSET_FOR_LEADER_EPOCH):
            return -1
        partition = OffsetForLeaderPartition(self.tp.partition, leader.epoch, self.epoch)
        request = offset_for_leader_epoch_request(
            connection.version(OFFSET_FOR_LEADER_EPOCH), {self.tp.topic: [partition]}
        )
        result = cluster.request(connection, request, deadline).single()
        if result.error_code:
            action = f"reading the end of leader epoch {self.epoch} of {self.tp}"
            raise map_read_error_code(result.error_code, action)
        return result.end_offset
