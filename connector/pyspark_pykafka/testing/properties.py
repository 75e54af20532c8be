"""
The settings of a test broker: small, quick to start, and strict.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Setting = str | int | float | bool
MAX_MESSAGE_BYTES = 10 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Node:
    """
    One process of the cluster, broker and controller in one; `id` counts from 1.
    """

    id: int
    port: int
    controller_port: int

    @property
    def name(self) -> str:
        """
        The name of the process; the names of its files begin with it.
        """
        return f"kafka-{self.id}"

    @property
    def address(self) -> str:
        """
        The address for clients.
        """
        return f"127.0.0.1:{self.port}"


def server_settings(
    node: Node, nodes: tuple[Node, ...], data: Path, config: Mapping[str, Setting]
) -> dict[str, str]:
    """
    Return the settings of one node; `config` overrides ours.
    """
    settings = {**_SETTINGS, **_replication(len(nodes)), **_listeners(node, nodes, data), **config}
    return {name: setting_text(value) for name, value in settings.items()}


def tiered_settings(brokers: int, store: Path) -> dict[str, Setting]:
    """
    Return the settings of a cluster that moves old segments into a folder (KIP-405).

    Each topic must enable tiered storage (`remote.storage.enable`) and set how much stays local.
    """
    return {
        "remote.log.storage.system.enable": True,
        "remote.log.storage.manager.class.name": f"{_REMOTE}.LocalTieredStorage",
        "remote.log.storage.manager.impl.prefix": "rsm.config.",
        "rsm.config.dir": str(store),
        "remote.log.metadata.manager.listener.name": "CLIENT",
        "rlmm.config.remote.log.metadata.topic.num.partitions": 1,
        "rlmm.config.remote.log.metadata.topic.replication.factor": 3 if brokers >= 3 else 1,
        # Segments are moved, and deleted locally, within a second or two.
        "remote.log.manager.task.interval.ms": 500,
        "log.retention.check.interval.ms": 500,
        "log.initial.task.delay.ms": 500,
    }


def setting_text(value: object) -> str:
    """
    Return a setting in the format of Kafka's property files.
    """
    return str(value).lower() if isinstance(value, bool) else str(value)


def _listeners(node: Node, nodes: tuple[Node, ...], data: Path) -> dict[str, Setting]:
    voters = ",".join(f"{voter.id}@127.0.0.1:{voter.controller_port}" for voter in nodes)
    return {
        "process.roles": "broker,controller",
        "node.id": node.id,
        # A rack for each node, to test reading from the nearest replica (KIP-392).
        "broker.rack": f"rack-{node.id}",
        "controller.quorum.voters": voters,
        "listeners": f"CLIENT://{node.address},CONTROLLER://127.0.0.1:{node.controller_port}",
        "advertised.listeners": f"CLIENT://{node.address}",
        "listener.security.protocol.map": "CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "CLIENT",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(data),
    }


def _replication(brokers: int) -> dict[str, Setting]:
    """
    Return the replication settings: a factor of 3 for three brokers, so that any one can fail.
    """
    replicas = 3 if brokers >= 3 else 1
    min_in_sync = 2 if replicas == 3 else 1
    return {
        "default.replication.factor": replicas,
        "min.insync.replicas": min_in_sync,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": min_in_sync,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": min_in_sync,
        # A killed broker cannot rejoin before its session times out. One broker can have a short
        # session; with three, a slow machine must not look like a failure.
        "broker.session.timeout.ms": 5000 if replicas == 3 else 2500,
    }


_REMOTE = "org.apache.kafka.server.log.remote.storage"

_SETTINGS: dict[str, Setting] = {
    # A misspelt topic must be an error, not a new topic.
    "auto.create.topics.enable": False,
    "message.max.bytes": MAX_MESSAGE_BYTES,
    "replica.fetch.max.bytes": MAX_MESSAGE_BYTES,
    "group.initial.rebalance.delay.ms": 0,
    # Tests wait for the timeout of dead group members.
    "group.min.session.timeout.ms": 1000,
    # Tests write records with old timestamps, which must not be deleted by retention.
    "log.retention.ms": -1,
    # Fewer partitions and threads start sooner.
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 3,
    "share.coordinator.state.topic.num.partitions": 1,
    "num.network.threads": 2,
    "num.io.threads": 4,
    "log.cleaner.dedupe.buffer.size": 4 * 1024 * 1024,
    # Failures, compaction and deletion take effect within seconds instead of minutes.
    "broker.heartbeat.interval.ms": 500,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
    "log.cleaner.backoff.ms": 1000,
    "log.segment.delete.delay.ms": 1000,
}
