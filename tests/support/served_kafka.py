"""
Real connections to clusters: a simulated one that is served on loopback ports, and raw requests.
"""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING, Any

from tests.simulation.kafka.settings import ClusterSettings
from tests.simulation.kafka.tcp import ServedCluster
from tests.support import fetching
from tests.support.kafka_requests import EARLIEST, LATEST, KafkaRequests

from pyspark_pykafka.engines.selection import fetch
from pyspark_pykafka.offsets import OffsetRange
from pyspark_pykafka.offsets import TopicPartition as Tp
from pyspark_pykafka.testing.client import KafkaAccess
from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping

_SECONDS = 30.0
#: A coordinator that is being created or loaded.
_NOT_READY = {14, 15, 16}


class SimulatedAccess(ServedCluster, KafkaAccess):
    """
    A simulated cluster with the methods that tests use of a real one.
    """

    client_config: Mapping[str, Any] = {}
    bootstrap = ""

    def __init__(self) -> None:
        super().__init__(settings=ClusterSettings(initial_rebalance_seconds=0))


class RawKafka(KafkaRequests):
    """
    Requests over one connection to a cluster of a single broker.
    """

    def __init__(self, bootstrap: str, topic: str) -> None:
        host, port = bootstrap.split(",", maxsplit=1)[0].split(":")
        self.topic = topic
        self._socket = socket.create_connection((host, int(port)), _SECONDS)
        self._reader = self._socket.makefile("rb")

    def close(self) -> None:
        self._reader.close()
        self._socket.close()

    def request(self, node: int, request: Any, version: int) -> Any:  # noqa: ARG002 (a single node)
        request.API_VERSION = version
        request.with_header(7, "test")
        self._socket.sendall(request.encode(version=version, header=True, framed=True))
        content = self._reader.read(int.from_bytes(self._reader.read(4), "big"))
        kind = request.header.get_response_class()[None]
        at = 5 if kind.flexible_version_q(version) else 4
        return kind.decode(content[at:], version=version, header=False)

    def init(self, name: str | None, timeout_ms: int = 60_000) -> Any:
        responses: list[Any] = []

        def blocker() -> str | None:
            responses.append(super(RawKafka, self).init(name, timeout_ms))
            code = responses[-1].error_code
            return f"the coordinator answers {code}" if code in _NOT_READY else None

        wait_until(blocker, _SECONDS)
        return responses[-1]

    def now(self) -> float:
        return time.time()

    @property
    def leader(self) -> int:
        return 1

    def coordinator(self, name: str) -> int:  # noqa: ARG002
        return 1


def values(cluster: KafkaAccess, topic: str, **config: str) -> list[bytes | None]:
    """
    Return what librdkafka reads.
    """
    return [record.value for record in cluster.consume(topic, config)]


def wire_values(cluster: KafkaAccess, topic: str, isolation: str = "read_committed") -> list[bytes]:
    """
    Return what the wire engine reads.
    """
    settings = fetching.settings(
        cluster.bootstrap, "wire", schema=fetching.VALUES, isolation_level=isolation
    )
    wanted = OffsetRange(Tp(topic, 0), EARLIEST, LATEST)
    return [value for rows in fetch(wanted, settings) for value in rows["value"].to_pylist()]
