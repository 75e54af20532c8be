"""
The true state of a simulated cluster for checkers, read without requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.simulation.kafka.coordinator import shard_for
from tests.simulation.kafka.image import NO_LEADER, TRANSACTIONS, Partition
from tests.simulation.kafka.replica import Replica

from pyspark_pykafka.verify.checker import ABORTED, COMMITTED, MARKER, OPEN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.simulation.kafka.batches import StoredBatch
    from tests.simulation.kafka.image import PartitionState, Shard
    from tests.simulation.kafka.replica_log import ReplicaLog
    from tests.simulation.kafka.transaction_state import TransactionState
    from tests.simulation.kafka.world import World


class TrueRecord(NamedTuple):
    """
    A record in a log: COMMITTED, ABORTED, OPEN (its transaction has no marker yet), or a MARKER.

    Records without a transaction are COMMITTED.
    """

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    state: str


class Truth:
    """
    The controller's decisions, the leaders' logs, and the coordinators' replicated states.
    """

    def __init__(self, world: World) -> None:
        self._world = world

    def leader(self, topic: str, partition: int) -> int:
        """
        Return the leader that the controller knows, -1 for none.
        """
        return self._state(topic, partition).leader

    def leader_epoch(self, topic: str, partition: int) -> int:
        return self._state(topic, partition).epoch

    def in_sync(self, topic: str, partition: int) -> tuple[int, ...]:
        return self._state(topic, partition).isr

    def replicas(self, topic: str, partition: int) -> tuple[int, ...]:
        return self._state(topic, partition).replicas

    def is_known_everywhere(self, topic: str, partitions: int) -> bool:
        """
        Return whether the metadata of every running broker has at least this number of partitions
        of a topic.
        """
        images = [node.image for node in self._world.nodes.values() if node.image is not None]
        last = Partition(topic, partitions - 1)
        return all(image.find(last) is not None for image in images)

    def _state(self, topic: str, partition: int) -> PartitionState:
        state = self._world.controller.image.find(Partition(topic, partition))
        assert state is not None, f"{topic}-{partition} does not exist"
        return state

    def coordinator(self, key: str, kind: str = TRANSACTIONS) -> int:
        """
        Return the coordinator of a transactional id, or of a group.
        """
        return self._world.controller.image.shards[self._shard(key, kind)].node

    def _shard(self, key: str, kind: str) -> Shard:
        return shard_for(next(iter(self._world.nodes.values())), kind, key)

    def transaction(self, name: str) -> TransactionState | None:
        """
        Return the replicated state of a transactional id, or None if it has none.
        """
        values = self._world.shards[self._shard(name, TRANSACTIONS)].values
        state: TransactionState | None = values.get(name)
        return state

    def records(self, topic: str, partition: int) -> list[TrueRecord]:
        """
        Return the log of the partition's leader; without one, that of the longest in-sync replica.
        """
        log = self._truth(topic, partition).log
        return [r for r in self._of_batches(log, log.batches) if r.offset >= log.start]

    def appended(self, topic: str, partition: int) -> list[TrueRecord]:
        """
        Return all records of the log, including those removed by retention or compaction.
        """
        log = self._truth(topic, partition).log
        return self._of_batches(log, log.appended)

    def _of_batches(self, log: ReplicaLog, batches: Sequence[StoredBatch]) -> list[TrueRecord]:
        records = []
        for batch in batches:
            state = COMMITTED
            if batch.control:
                state = MARKER
            elif log.is_aborted(batch):
                state = ABORTED
            elif log.is_open(batch):
                state = OPEN
            records += [
                TrueRecord(r.offset, r.key, r.value, r.timestamp, state) for r in batch.records()
            ]
        return records

    def log_start(self, topic: str, partition: int) -> int:
        return self._truth(topic, partition).log.start

    def log_end(self, topic: str, partition: int) -> int:
        return self._truth(topic, partition).log.end

    def high_watermark(self, topic: str, partition: int) -> int:
        return self._truth(topic, partition).high_watermark

    def last_stable_offset(self, topic: str, partition: int) -> int:
        return self._truth(topic, partition).last_stable

    def replica_states(self, topic: str, partition: int) -> list[Replica]:
        """
        Return all replicas of a partition, for tests of the simulation itself.
        """
        replicas = (n.replicas.get(Partition(topic, partition)) for n in self._world.nodes.values())
        return [replica for replica in replicas if replica is not None]

    def _leading(self, topic: str, partition: int) -> Replica:
        return self._world.nodes[self.leader(topic, partition)].replicas[
            Partition(topic, partition)
        ]

    def _truth(self, topic: str, partition: int) -> Replica:
        state = self._state(topic, partition)
        nodes = state.isr if state.leader == NO_LEADER else (state.leader,)
        candidates = (self._world.nodes[n].replicas.get(Partition(topic, partition)) for n in nodes)
        topic_id = self._world.controller.image.topics[topic].topic_id
        # A node that is cut off may have a replica of a former topic of that name.
        replicas = [r for r in candidates if r is not None and r.topic_id == topic_id]
        if not replicas:
            # No node has a new topic in its metadata yet.
            return Replica(self._world.nodes[nodes[0]], Partition(topic, partition))
        return max(replicas, key=lambda replica: replica.log.end)
