"""
Writes the transaction marker of one partition, and retries until it is replicated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.kafka.batches import marker_batch
from tests.simulation.kafka.transaction_state import PREPARE_COMMIT

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.kafka.image import Partition
    from tests.simulation.kafka.replica import Replica
    from tests.simulation.kafka.transaction_coordinator import TransactionCoordinator
    from tests.simulation.kafka.transaction_state import TransactionState

    Written = Callable[[Partition], None]


def write_marker(
    coordinator: TransactionCoordinator,
    state: TransactionState,
    partition: Partition,
    written: Written,
) -> None:
    """
    Write a marker after a delay, and retry until the partition's replicas have it.
    """
    world = coordinator.node.world

    def attempt() -> None:
        if coordinator.node.known.find(partition) is None:
            # The topic was deleted.
            written(partition)
            return
        leader = _leader(coordinator, partition)
        appended = leader is not None and _append(
            leader, state, coordinator.epoch, lambda: written(partition), retry
        )
        if not appended:
            retry()

    def retry() -> None:
        coordinator.later(world.settings.markers.draw(world.random), attempt)

    retry()


def _leader(coordinator: TransactionCoordinator, partition: Partition) -> Replica | None:
    node = coordinator.node
    leadership = node.known.find(partition)
    if leadership is None or leadership.leader not in node.world.nodes:
        return None
    if not node.reachable and leadership.leader != node.id:
        return None
    if not node.world.connected(node.id, leadership.leader):
        return None
    replica = node.world.nodes[leadership.leader].replicas.get(partition)
    return replica if replica is not None and replica.leads else None


def _append(
    leader: Replica,
    state: TransactionState,
    coordinator_epoch: int,
    done: Callable[[], None],
    retry: Callable[[], None],
) -> bool:
    """
    Append a marker, and call one of the callbacks; return False if the leader cannot append.
    """
    if len(leader.isr) < leader.min_isr:
        return False
    entry = leader.log.producers.entries.get(state.producer_id)
    if entry is not None and entry.epoch > state.epoch:
        # A later producer epoch has written here, so this transaction has already ended.
        done()
        return True
    if entry is not None and entry.coordinator_epoch > coordinator_epoch:
        # TRANSACTION_COORDINATOR_FENCED: another coordinator has taken over, and writes the marker.
        return True
    epoch = leader.epoch
    commit = state.state == PREPARE_COMMIT
    now_ms = leader.node.world.now_ms()
    marker = leader.append(
        marker_batch(
            state.producer_id,
            state.epoch,
            now_ms,
            commit=commit,
            coordinator_epoch=coordinator_epoch,
        )
    )

    def check() -> bool:
        if not leader.leads or leader.epoch != epoch:
            retry()
            return True
        if leader.high_watermark < marker.next_offset:
            return False
        done()
        return True

    leader.wait(check)
    return True
