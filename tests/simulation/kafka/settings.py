"""
The settings of a simulated cluster, and the protocol of its scheduler.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from tests.simulation.kafka.releases import NEWEST, Release

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping


class Schedule(Protocol):
    """
    The clock and the event queue of the simulation; ``now`` is also the cluster's wall clock.
    """

    def now(self) -> float: ...

    def call_later(self, seconds: float, action: Callable[[], None]) -> None: ...


@dataclass(frozen=True, slots=True)
class Delay:
    """
    The bounds of a random duration in seconds.
    """

    low: float
    high: float

    def draw(self, random: random.Random) -> float:
        return random.uniform(self.low, self.high)


@dataclass(frozen=True)
class ClusterSettings:
    """
    Settings, with Kafka's names for those that Kafka has, and the durations of internal steps.
    """

    release: Release = NEWEST
    replication_factor: int = 3
    #: None: all replicas but one, and at least one.
    min_insync_replicas: int | None = None
    unclean_leader_election: bool = False
    max_message_bytes: int = 1_048_588
    max_transaction_timeout_ms: int = 900_000
    #: How far in the future a record's timestamp may be.
    timestamp_after_max_ms: int = 3_600_000
    transaction_partitions: int = 50
    group_partitions: int = 50
    #: The advertised addresses by node; others are ``broker<id>:9092``.
    addresses: Mapping[int, tuple[str, int]] = field(default_factory=dict)
    #: Half a round trip of a follower's fetch.
    replication: Delay = field(default=Delay(0.0005, 0.005))
    #: From a controller's decision until a broker has applied it.
    metadata: Delay = field(default=Delay(0.001, 0.05))
    #: One attempt to write a transaction's marker to a partition.
    markers: Delay = field(default=Delay(0.001, 0.05))
    #: A replicated write of a coordinator.
    coordinator_write: Delay = field(default=Delay(0.0005, 0.01))
    coordinator_load: Delay = field(default=Delay(0.001, 0.2))
    #: ``broker.session.timeout.ms``: until the controller notices a lost broker.
    broker_session_seconds: float = 9.0
    replica_lag_seconds: float = 30.0
    #: How often a coordinator looks for transactions that have timed out.
    abort_timed_out_seconds: float = 10.0
    #: How long an empty group waits for further members, ``group.initial.rebalance.delay.ms``.
    initial_rebalance_seconds: float = 3.0

    def address(self, node_id: int) -> tuple[str, int]:
        return self.addresses.get(node_id, (f"broker{node_id}", 9092))
