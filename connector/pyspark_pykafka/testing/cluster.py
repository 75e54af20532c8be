"""A real Kafka cluster on this machine, to test against and to try things on."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

from . import kraft, readiness
from .client import KafkaAccess
from .processes import Processes, ServerError, retry_on_taken_port
from .properties import tiered_settings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType

    from typing_extensions import Self

    from .properties import Node, Setting

KAFKA_VERSION = "4.3.1"
START_SECONDS = 90.0
STOP_SECONDS = 30.0
NOT_RUNNING = "This cluster does not run; call start(), or use it in a with statement."


class KafkaCluster(KafkaAccess):
    """
    One broker, or three of which any one may be lost, in KRaft mode on free loopback ports.

    Everything it keeps is in a temporary folder, which goes with the last process at `stop()`,
    and also when this Python ends in any other way. Nodes are numbered from 1; a verb without a
    number is for all of them.

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
            version: Kafka's; any from 3.9 on.
            config: settings for server.properties; they win over ours.
            client_config: what clients must say to this cluster, in librdkafka's words.
            port: the first broker's port, the others follow it; free ones without it.
            tiered: whether topics can be in tiered storage (`remote.storage.enable`), which is a
                folder that all brokers share.
        """
        if brokers not in (1, 3):
            msg = f"brokers is {brokers!r}; it must be 1 or 3."
            raise ValueError(msg)
        self.brokers = brokers
        self.version = version
        self.config = dict(config or {})
        self.client_config = dict(client_config or {})
        self.nodes: tuple[Node, ...] = ()
        self._id = ""
        self.tiered = tiered
        self._port = port
        self._processes: Processes | None = None
        self._answering: set[int] = set()

    def start(self) -> KafkaCluster:
        """Start all nodes, and return once they have formed a cluster that answers."""
        if self._processes is not None:
            msg = f"This cluster already runs at {self.bootstrap}; stop it first."
            raise ServerError(msg)
        return self._start_once() if self._port else retry_on_taken_port(self._start_once)

    def stop(self, node: int | None = None) -> None:
        """
        Shut one node down in an orderly way, its data kept; without a number, end everything.

        The whole cluster is killed rather than shut down, since its data goes with it.
        """
        if node is not None:
            self._end(self._chosen(node)[0], signal.SIGTERM)
        elif self._processes is not None:
            processes, self._processes = self._processes, None
            self._answering.clear()
            processes.close()

    def kill(self, node: int | None = None) -> None:
        """Kill one node, or all, as a power cut would; the data stays for `restart()`."""
        for one in self._chosen(node):
            self._end(one, signal.SIGKILL)

    def restart(self, node: int | None = None) -> None:
        """
        Start a node again on the same port and data; one that answers is shut down first.

        Without a number: those that are down together, then the others, one after another.
        """
        chosen = self._chosen(node)
        rolling = [one for one in chosen if one.id in self._answering]
        down = [one for one in chosen if one.id not in self._answering]
        if down:
            self._start_again(down, signal.SIGKILL)
        for one in rolling:
            self._start_again([one], signal.SIGTERM)

    def pause(self, node: int | None = None) -> None:
        """Freeze one node, or all: connections stay open and nothing is answered."""
        for one in self._chosen(node):
            self._group.send(one.name, signal.SIGSTOP)
            self._answering.discard(one.id)

    def resume(self, node: int | None = None) -> None:
        """Let a paused node, or all, go on, and return once they are back in the cluster."""
        for one in self._chosen(node):
            self._group.send(one.name, signal.SIGCONT)
            self._answering.add(one.id)
        self._wait_ready()

    @property
    def bootstrap(self) -> str:
        """The brokers' addresses, as '127.0.0.1:port,...', those that are down included."""
        if not self.nodes:
            msg = "This cluster was not started; call start(), or use it in a with statement."
            raise ServerError(msg)
        return ",".join(node.address for node in self.nodes)

    def answering(self) -> list[str]:
        """Return the address of each node that was neither stopped, killed nor paused."""
        return [node.address for node in self.nodes if node.id in self._answering]

    def answering_ids(self) -> set[int]:
        """Return the id of each of those nodes."""
        return set(self._answering)

    def node_config(self, node: Node) -> Mapping[str, Setting]:  # noqa: ARG002 (for subclasses)
        """Return the settings of one node that win over ours; a subclass may tell nodes apart."""
        return self.config

    def check(self) -> None:
        """Raise if a node that should answer has ended by itself."""
        for node in self.nodes:
            code = self._group.exit_code(node.name) if node.id in self._answering else None
            if code is not None:
                msg = f"{node.name} ended with exit code {code}.{self._group.tail(node.name)}"
                raise ServerError(msg)

    def log(self, node: int = 1) -> str:
        """Return what a node has logged."""
        return self._group.log(self._chosen(node)[0].name).read_text(errors="replace")

    def data_folder(self, node: int = 1) -> Path:
        """Return where a node keeps its logs, a folder each; change them only when it is down."""
        return kraft.data_folder(self._group.folder, self._chosen(node)[0])

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

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
        chosen = [one for one in self.nodes if node in {None, one.id}]
        if not chosen:
            ids = [one.id for one in self.nodes]
            msg = f"node is {node!r}; it must be one of {ids}, or None for all."
            raise ValueError(msg)
        return chosen

    def _start_once(self) -> KafkaCluster:
        command = self._command()
        self.nodes = kraft.choose_nodes(self.brokers, self._port)
        self._processes = Processes("kafka")
        try:
            tiers = self._tiers(self._processes.folder)
            self._id = kraft.lay_out(
                command, self._processes, self.nodes, lambda one: {**tiers, **self.node_config(one)}
            )
            self._launch(list(self.nodes))
        except BaseException:
            self.stop()
            raise
        return self

    def _command(self) -> list[str]:
        return kraft.java_command(self.version, tiered=self.tiered)

    def _tiers(self, folder: Path) -> dict[str, Setting]:
        return tiered_settings(self.brokers, folder / "tiered") if self.tiered else {}

    def _start_again(self, nodes: list[Node], ending: signal.Signals) -> None:
        for one in nodes:
            self._end(one, ending)
        self._launch(nodes)

    def _launch(self, nodes: list[Node]) -> None:
        command = self._command()
        for one in nodes:
            self._group.start(one.name, kraft.broker_command(command, self._group.folder, one))
            self._answering.add(one.id)
        self._wait_ready()

    def _end(self, node: Node, number: signal.Signals) -> None:
        self._answering.discard(node.id)
        self._group.end(node.name, number, STOP_SECONDS)

    def _wait_ready(self) -> None:
        """Ask each node that should answer, at its own address, until it sees all the others."""
        for node in self.nodes:
            if node.id in self._answering:
                self._wait_for(node)

    def _wait_for(self, node: Node) -> None:
        self._group.wait_ready(
            node.name,
            lambda: readiness.missing_brokers(
                lambda: self.admin(node.address), self._answering, self._id
            ),
            START_SECONDS,
        )
