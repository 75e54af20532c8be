"""Says how a test broker is configured: small, quick to start, and strict where Kafka is lax."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Setting = str | int | float | bool
LARGEST_MESSAGE = 10 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Node:
    """One process of the cluster, broker and controller in one; `id` counts from 1."""

    id: int
    port: int
    controller_port: int

    @property
    def name(self) -> str:
        """What its process, log and folder are called."""
        return f"kafka-{self.id}"

    @property
    def address(self) -> str:
        """Where its clients connect."""
        return f"127.0.0.1:{self.port}"


def server_settings(
    node: Node, nodes: tuple[Node, ...], data: Path, config: Mapping[str, Setting]
) -> dict[str, str]:
    """Return one node's settings; `config` wins over what we choose."""
    settings = {**_SETTINGS, **_copies(len(nodes)), **_place(node, nodes, data), **config}
    return {name: setting_text(value) for name, value in settings.items()}


def tiered_settings(brokers: int, store: Path) -> dict[str, Setting]:
    """
    Return the settings of a cluster that moves old segments into a folder (KIP-405).

    Which topics do is said by each (`remote.storage.enable`), and how much stays local, too.
    """
    return {
        "remote.log.storage.system.enable": True,
        "remote.log.storage.manager.class.name": f"{_REMOTE}.LocalTieredStorage",
        "remote.log.storage.manager.impl.prefix": "rsm.config.",
        "rsm.config.dir": str(store),
        "remote.log.metadata.manager.listener.name": "CLIENT",
        "rlmm.config.remote.log.metadata.topic.num.partitions": 1,
        "rlmm.config.remote.log.metadata.topic.replication.factor": 3 if brokers >= 3 else 1,
        # Segments are moved, and go from the local disk, within a second or two.
        "remote.log.manager.task.interval.ms": 500,
        "log.retention.check.interval.ms": 500,
        "log.initial.task.delay.ms": 500,
    }


def setting_text(value: object) -> str:
    """Return a setting as Kafka writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _place(node: Node, nodes: tuple[Node, ...], data: Path) -> dict[str, Setting]:
    voters = ",".join(f"{one.id}@127.0.0.1:{one.controller_port}" for one in nodes)
    return {
        "process.roles": "broker,controller",
        "node.id": node.id,
        # As if each node stood in a place of its own, for readers that prefer a near replica.
        "broker.rack": f"rack-{node.id}",
        "controller.quorum.voters": voters,
        "listeners": f"CLIENT://{node.address},CONTROLLER://127.0.0.1:{node.controller_port}",
        "advertised.listeners": f"CLIENT://{node.address}",
        "listener.security.protocol.map": "CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "CLIENT",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(data),
    }


def _copies(brokers: int) -> dict[str, Setting]:
    """Keep three copies where there are three brokers, so that any one of them can be lost."""
    copies = 3 if brokers >= 3 else 1
    needed = 2 if copies == 3 else 1
    return {
        "default.replication.factor": copies,
        "min.insync.replicas": needed,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": needed,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": needed,
        # A killed broker may not come back before its session is over. With one broker nothing
        # else depends on the session; with three, a slow machine must not look like a failure.
        "broker.session.timeout.ms": 5000 if copies == 3 else 2500,
    }


_REMOTE = "org.apache.kafka.server.log.remote.storage"

_SETTINGS: dict[str, Setting] = {
    # A misspelt topic must be an error, not a new topic.
    "auto.create.topics.enable": False,
    "message.max.bytes": LARGEST_MESSAGE,
    "replica.fetch.max.bytes": LARGEST_MESSAGE,
    "group.initial.rebalance.delay.ms": 0,
    # Tests let members die, and wait for it.
    "group.min.session.timeout.ms": 1000,
    # Tests write records of long ago, which must not age out unless a test wants it.
    "log.retention.ms": -1,
    # Fewer partitions and threads start sooner.
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 3,
    "share.coordinator.state.topic.num.partitions": 1,
    "num.network.threads": 2,
    "num.io.threads": 4,
    "log.cleaner.dedupe.buffer.size": 4 * 1024 * 1024,
    # Failures, compaction and deletion show within seconds, so tests needn't wait for minutes.
    "broker.heartbeat.interval.ms": 500,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
    "log.cleaner.backoff.ms": 1000,
    "log.segment.delete.delay.ms": 1000,
}
