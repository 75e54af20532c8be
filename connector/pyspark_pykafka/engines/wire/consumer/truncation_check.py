"""
Whether a range is read from the log that it was planned in, whoever leads the partition by then.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark_pykafka.engines.error_mapping import map_error_code
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
    The log has lost records since it was seen.
    """

    def __init__(self, truncation: Truncation) -> None:
        self.truncation = truncation
        super().__init__(truncation)


@dataclass(slots=True)
class LogCheck:
    """
    Asks each later leader where the epoch ends in which all before ``seen`` was seen (KIP-320).

    Brokers refuse a Fetch that names another leader epoch than theirs, so whoever checks before the
    first Fetch of an epoch reads from no other log. Within the epoch itself nothing can have been
    truncated, and nothing is asked: as long as a leader stays, the check is free.
    """

    tp: TopicPartition
    seen: int
    epoch: int = NO_EPOCH
    _checked: int = field(init=False)

    def __post_init__(self) -> None:
        self._checked = self.epoch

    def saw(self, end: int, epoch: int) -> None:
        """
        Take note of where a leader's log ends; counts if nothing was seen before.
        """
        if self.epoch == NO_EPOCH and end >= self.seen:
            self.epoch = self._checked = epoch

    def run(self, cluster: Cluster, leader: Leader, deadline: Deadline) -> None:
        """
        Ask the leader, if its epoch is another one than the last that was checked.

        Raises :class:`LogTruncatedError`, until :meth:`forget` is called, and
        :class:`BrokerUnavailableError` where what is known of the leader is older than the range.
        """
        if not self.seen or NO_EPOCH in {self.epoch, leader.epoch}:
            return
        if leader.epoch < self._checked:
            self._on_older(leader)
        if leader.epoch <= self._checked:
            return
        end = self._end(cluster, leader, deadline)
        if 0 <= end < self.seen:
            raise LogTruncatedError(Truncation(self.tp, self.seen, self.epoch, end))
        self._checked = leader.epoch

    def forget(self) -> None:
        """
        Read on in whatever log there is; what is seen from now on counts.
        """
        self.epoch = self._checked = NO_EPOCH

    def _on_older(self, leader: Leader) -> None:
        # Without ids, a topic that was made again looks the same: its epochs begin anew.
        if leader.topic_id is not None:
            msg = (
                f"{self.tp}: a broker that is behind the others told who leads it, in leader epoch "
                f"{leader.epoch}, which was {self._checked} before. Is it cut off from the others?"
            )
            raise BrokerUnavailableError(msg)

    def _end(self, cluster: Cluster, leader: Leader, deadline: Deadline) -> int:
        """
        Return the offset behind the last record up to the epoch, -1 where that cannot be told.
        """
        connection = cluster.connection(leader.node, deadline)
        if not connection.supports(OFFSET_FOR_LEADER_EPOCH):
            return -1
        wanted = {
            self.tp.topic: [OffsetForLeaderPartition(self.tp.partition, leader.epoch, self.epoch)]
        }
        request = offset_for_leader_epoch_request(
            connection.version(OFFSET_FOR_LEADER_EPOCH), wanted
        )
        answer = cluster.request(connection, request, deadline)
        found = answer.single()
        if found.error_code:
            doing = f"asking where leader epoch {self.epoch} of {self.tp} ends"
            raise map_error_code(found.error_code, doing)
        return found.end_offset
