"""
The leader of each partition, according to the last Metadata response.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark_pykafka.engines.wire.network.cluster import Cluster
    from pyspark_pykafka.engines.wire.protocol.list_offsets import ListOffsetsPartition
    from pyspark_pykafka.engines.wire.protocol.metadata import PartitionMetadata, TopicMetadata
    from pyspark_pykafka.engines.wire.protocol.multi_fetch import FetchPartition
    from pyspark_pykafka.engines.wire.protocol.offset_for_leader_epoch import (
        OffsetForLeaderPartition,
    )
    from pyspark_pykafka.offsets import TopicPartition

P = TypeVar("P", bound="ListOffsetsPartition | OffsetForLeaderPartition | FetchPartition")


class PartitionsByLeader(NamedTuple, Generic[P]):
    """
    The partitions to request, by leader; those without a leader; and those not in the metadata.
    """

    requests: dict[int, dict[str, list[P]]]
    leaderless: list[TopicPartition]
    unknown: list[TopicPartition]


class PartitionLeaders:
    """
    Caches the leaders of the topics that were described last.
    """

    def __init__(self) -> None:
        self._leaders: dict[str, dict[int, PartitionMetadata]] = {}

    def clear(self) -> None:
        """
        Forget all leaders.
        """
        self._leaders.clear()

    def update(self, topics: Mapping[str, TopicMetadata]) -> None:
        """
        Replace the leaders by those in the topics' metadata.
        """
        self._leaders = {
            name: {partition.partition_index: partition for partition in topic.partitions}
            for name, topic in topics.items()
        }

    def group(
        self,
        cluster: Cluster,
        requested: Mapping[TopicPartition, int],
        partition_type: Callable[[int, int, int], P],
    ) -> PartitionsByLeader[P]:
        """
        Return the requested partitions by leader, each with its time, epoch or offset.

        ``partition_type`` is called with a partition, its leader epoch, and the time, epoch or
        offset.
        """
        by_leader: PartitionsByLeader[P] = PartitionsByLeader({}, [], [])
        for tp, time_or_epoch in requested.items():
            topic, index = tp
            leader = self._leaders.get(topic, {}).get(index)
            if leader is None:
                by_leader.unknown.append(tp)
            elif not cluster.has_broker(leader.leader_id):
                by_leader.leaderless.append(tp)
            else:
                topics = by_leader.requests.setdefault(leader.leader_id, {})
                partition = partition_type(index, leader.leader_epoch, time_or_epoch)
                topics.setdefault(topic, []).append(partition)
        return by_leader
