"""
A real Kafka cluster on this machine, for tests and experiments.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

from . import kraft, readiness
from .class_archive import archive_options, ensure_archive
from .client import KafkaAccess
from .lifecycle import Startable
from .ports import is_free
from .processes import Processes, ServerError, retry_on_taken_port
from .properties import tiered_settings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from .properties import Node, Setting

KAFKA_VERSION = "4.3.1"
START_SECONDS = 90.0
STOP_SECONDS = 30.0
NOT_RUNNING = "This cluster is not running; call start(), or use it in a with statement."


class KafkaCluster(Startable, KafkaAccess):
    """
    One broker, or three that tolerate the failure of any one, in KRaft mode on free loopback ports.

    All data is in a temporary folder. `stop()` ends the processes and removes the folder; so does
    the end of this Python process, even if it is killed. Nodes are numbered from 1. Without a
    number, `stop`, `kill`, `restart`, `pause` and `resume` apply to all of them.

    ```python
    with KafkaCluster() as kafka:
        kafka.create_topic("flights", partitions=2)
        kafka.produce("flights", [Record(b"value", key=b"key")])
        kafka.consume("flights")
    ```
    """

    def __init__(
        self,
        brokers: int = 1,
        version: str = KAFKA_VERSION,
        config: Mapping[str, Setting] | None = None,
        *,
        client_config: Mapping[str, Any] | None = None,
        port: int | None = None,
        tiered: bool = False,
    ) -> None:
        """
        Describe a cluster; `start()` or `with` starts it.

        Args:
            brokers: 1 or 3.
            version: Kafka's version, 3.9 or newer.
            config: settings for server.properties, which override ours.
            client_config: librdkafka settings that clients of this cluster need.
            port: the first broker's port; the others get the next ones. Free ports if not given.
            tiered: whether topics can use tiered storage (`remote.storage.enable`, KIP-405): a
                folder shared by all brokers.
        """
        if brokers not in (1, 3):
            msg = f"brokers is {brokers!r}; it must be 1 or 3."
            raise ValueError(msg)
        self.brokers = brokers
        self.version = version
        self.config = dict(config or {})
        self.client_config = dict(client_config or {})
        self.nodes: tuple[Node, ...] = ()
        self._cluster_id = ""
        self.tiered = tiered
        self._port = port
        self._processes: Processes | None = None
        self._running: set[int] = set()

    def start(self) -> KafkaCluster:
        """
        Start all nodes, and return once they have formed a cluster and accept requests.
        """
        if self._processes is not None:
            msg = f"This cluster is already running at {self.bootstrap}; stop it first."
            raise ServerError(msg)
        if self._port is None:
            return retry_on_taken_port(self._start_once)
        self._check_ports(self._port)
        return self._start_once()

    def stop(self, node: int | None = None) -> None:
        """
        Shut one node down cleanly and keep its data; without a number, stop and remove everything.

        The whole cluster is killed rather than shut down, since its data is removed anyway.
        """
        if node is not None:
            self._end(self._chosen(node)[0], signal.SIGTERM)
        elif self._processes is not None:
            processes, self._processes = self._processes, None
            self._running.clear()
            processes.close()

    def kill(self, node: int | None = None) -> None:
        """
        Kill one node, or all, with SIGKILL; the data is kept for `restart()`.
        """
        for member in self._chosen(node):
            self._end(member, signal.SIGKILL)

    def restart(self, node: int | None = None) -> None:
        """
        Start a node again with the same port and data; a running node is shut down first.

        Without a number: first all nodes that are down, together, then the rest one by one.
        """
        members = self._chosen(node)
        rolling = [member for member in members if member.id in self._running]
        down = [member for member in members if member.id not in self._running]
        if down:
            self._start_again(down, signal.SIGKILL)
        for member in rolling:
            self._start_again([member], signal.SIGTERM)

    def pause(self, node: int | None = None) -> None:
        """
        Suspend one node, or all: connections stay open, requests get no response.
        """
        for member in self._chosen(node):
            self._group.send(member.name, signal.SIGSTOP)
            self._running.discard(member.id)

    def resume(self, node: int | None = None) -> None:
        """
        Resume a paused node, or all, and return once they have rejoined the cluster.
        """
        for member in self._chosen(node):
            self._group.send(member.name, signal.SIGCONT)
            self._running.add(member.id)
        self._wait_ready()

    @property
    def bootstrap(self) -> str:
        """
        The addresses of all brokers, including those that are down, as '127.0.0.1:port,...'.
        """
        if not self.nodes:
            msg = "This cluster was not started; call start(), or use it in a with statement."
            raise ServerError(msg)
        return ",".join(node.address for node in self.nodes)

    def running_addresses(self) -> list[str]:
        """
        Return the addresses of the nodes that are not stopped, killed or paused.
        """
        return [node.address for node in self._running_nodes()]

    def running_ids(self) -> set[int]:
        """
        Return the ids of the nodes that are not stopped, killed or paused.
        """
        return set(self._running)

    def node_config(self, node: Node) -> Mapping[str, Setting]:  # noqa: ARG002 (for subclasses)
        """
        Return the settings of one node that override ours; subclasses may vary them by node.
        """
        return self.config

    def check(self) -> None:
        """
        Raise `ServerError` if a node that should be running has exited.
        """
        for node, code in self.exited_nodes().items():
            name = self._chosen(node)[0].name
            msg = f"{name} ended with exit code {code}.{self._group.tail(name)}"
            raise ServerError(msg)

    def exited_nodes(self) -> dict[int, int]:
        """
        Return the ids of nodes that should be running but have exited, with their exit codes.
        """
        codes = {node.id: self._group.exit_code(node.name) for node in self._running_nodes()}
        return {node: code for node, code in codes.items() if code is not None}

    def log(self, node: int = 1) -> str:
        """
        Return the log of a node.
        """
        return self._group.log(self._chosen(node)[0].name).read_text(errors="replace")

    def data_folder(self, node: int = 1) -> Path:
        """
        Return the folder of a node's partition logs; change it only while the node is down.
        """
        return kraft.data_folder(self._group.folder, self._chosen(node)[0])

    def __repr__(self) -> str:
        where = self.bootstrap if self._processes is not None else "not running"
        return f"<KafkaCluster of {self.brokers}, Kafka {self.version}, {where}>"

    @property
    def _group(self) -> Processes:
        if self._processes is None:
            raise ServerError(NOT_RUNNING)
        return self._processes

    def _chosen(self, node: int | None) -> list[Node]:
        if self._processes is None:
            raise ServerError(NOT_RUNNING)
        members = [member for member in self.nodes if node in {None, member.id}]
        if not members:
            ids = [member.id for member in self.nodes]
            msg = f"node is {node!r}; it must be one of {ids}, or None for all."
            raise ValueError(msg)
        return members

    def _running_nodes(self) -> list[Node]:
        return [node for node in self.nodes if node.id in self._running]

    def _check_ports(self, first: int) -> None:
        """
        Raise `ServerError` if another program listens on a port: Java would report it after 10 s.
        """
        for port in range(first, first + self.brokers):
            if not is_free(port):
                msg = f"Port {port} is in use; choose another one, or stop what listens there."
                raise ServerError(msg)

    def _start_once(self) -> KafkaCluster:
        ensure_archive(self.version)
        command = self._command()
        self.nodes = kraft.assign_ports(self.brokers, self._port)
        self._processes = Processes("kafka")
        try:
            tiered = self._tiered_settings(self._processes.folder)
            self._cluster_id = kraft.prepare_nodes(
                command,
                self._processes,
                self.version,
                self.nodes,
                lambda member: {**tiered, **self.node_config(member)},
            )
            self._launch(list(self.nodes))
        except BaseException:
            self.stop()
            raise
        return self

    def _command(self) -> list[str]:
        java, *options = kraft.java_command(self.version, tiered=self.tiered)
        return [java, *archive_options(self.version), *options]

    def _tiered_settings(self, folder: Path) -> dict[str, Setting]:
        return tiered_settings(self.brokers, folder / "tiered") if self.tiered else {}

    def _start_again(self, nodes: list[Node], stop_signal: signal.Signals) -> None:
        for member in nodes:
            self._end(member, stop_signal)
        self._launch(nodes)

    def _launch(self, nodes: list[Node]) -> None:
        command = self._command()
        for member in nodes:
            self._group.start(
                member.name, kraft.broker_command(command, self._group.folder, member)
            )
            self._running.add(member.id)
        self._wait_ready()

    def _end(self, node: Node, stop_signal: signal.Signals) -> None:
        self._running.discard(node.id)
        self._group.end(node.name, stop_signal, STOP_SECONDS)

    def _wait_ready(self) -> None:
        """
        Wait until each running node, at its own address, reports all other nodes.
        """
        for node in self._running_nodes():
            self._wait_for(node)

    def _wait_for(self, node: Node) -> None:
        self._group.wait_ready(
            node.name,
            lambda: readiness.missing_brokers(
                lambda: self.admin(node.address), self._running, self._cluster_id
            ),
            START_SECONDS,
        )
