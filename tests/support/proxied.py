"""
Real brokers whose clients connect through proxies; the brokers connect to each other directly.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from tests.support.proxy import Proxy

from pyspark_pykafka.testing import KafkaCluster
from pyspark_pykafka.testing.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from pyspark_pykafka.testing.properties import Node, Setting


class ProxiedCluster:
    """
    One broker or three; ``bootstrap`` are the proxies, which the brokers advertise to clients.

    ``direct`` are listeners that advertise the brokers themselves: requests there bypass the
    proxies and their faults. ``kafka`` kills, pauses and restarts brokers.
    """

    def __init__(self, brokers: int = 3, config: Mapping[str, Setting] | None = None) -> None:
        self._stack = ExitStack()
        self.proxies = {
            node: self._stack.enter_context(Proxy(("127.0.0.1", port)))
            for node, port in enumerate(free_ports(brokers), start=1)
        }
        self.kafka = _Cluster(brokers, config, self.proxies)

    @property
    def bootstrap(self) -> str:
        """
        The proxies' addresses.
        """
        return ",".join(proxy.address for proxy in self.proxies.values())

    @property
    def direct(self) -> str:
        """
        The brokers' own addresses, which bypass the proxies.
        """
        return self.kafka.bootstrap

    def __enter__(self) -> Self:
        self._stack.enter_context(self.kafka)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


class _Cluster(KafkaCluster):
    """
    Adds a listener to each node that is advertised at its proxy.
    """

    def __init__(
        self, brokers: int, config: Mapping[str, Setting] | None, proxies: Mapping[int, Proxy]
    ) -> None:
        super().__init__(brokers, config=config)
        self._proxies = proxies

    def node_config(self, node: Node) -> Mapping[str, Setting]:
        proxy = self._proxies[node.id]
        host, port = proxy.target
        listener, controller = f"CLIENT://{node.address}", f"127.0.0.1:{node.controller_port}"
        return {
            "listeners": f"{listener},PROXIED://{host}:{port},CONTROLLER://{controller}",
            "advertised.listeners": f"{listener},PROXIED://{proxy.address}",
            "listener.security.protocol.map": (
                "CLIENT:PLAINTEXT,PROXIED:PLAINTEXT,CONTROLLER:PLAINTEXT"
            ),
            **super().node_config(node),
        }
