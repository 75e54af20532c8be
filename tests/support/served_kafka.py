"""
Real connections to a simulated cluster that is served on loopback ports, and raw requests to
brokers.
"""

from __future__ import annotations

import asyncio
import socket
import time
from typing import TYPE_CHECKING, Any

from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest
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
_TRANSACTION = 1
#: The error codes for a coordinator that is being created or loaded.
_NOT_READY = {14, 15, 16}


class SimulatedAccess(ServedCluster, KafkaAccess):
    """
    A simulated cluster with the methods of a real cluster that tests use.
    """

    client_config: Mapping[str, Any] = {}
    bootstrap = ""

    def __init__(self, brokers: int = 1) -> None:
        settings = ClusterSettings(initial_rebalance_seconds=0, broker_session_seconds=2)
        super().__init__(brokers, settings)

    def kill(self, node: int) -> None:
        self.call(lambda cluster: cluster.crash(node))

    def restart(self, node: int) -> None:
        self.call(lambda cluster: cluster.start(node))


class SilentAccess(SimulatedAccess):
    """
    A simulated cluster that does not respond to requests with these API keys.
    """

    silent_to: frozenset[int] = frozenset()

    async def _serve_one(
        self, node_id: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        size = await reader.readexactly(4)
        frame = await reader.readexactly(int.from_bytes(size, "big"))
        if int.from_bytes(frame[:2], "big") in self.silent_to:
            await asyncio.Event().wait()
        one_request = asyncio.StreamReader()
        one_request.feed_data(size + frame)
        return await super()._serve_one(node_id, one_request, writer)


class RawKafka(KafkaRequests):
    """
    Requests over one connection to each broker; brokers are numbered from 1.
    """

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.topic = topic
        self._addresses = bootstrap.split(",")
        self._sockets: dict[int, socket.socket] = {}

    def close(self) -> None:
        for connection in self._sockets.values():
            connection.close()

    def request(self, node: int, request: Any, version: int) -> Any:
        request.API_VERSION = version
        request.with_header(7, "test")
        connection = self._connection(node)
        connection.sendall(request.encode(version=version, header=True, framed=True))
        content = _read(connection, int.from_bytes(_read(connection, 4), "big"))
        kind = request.header.get_response_class()[None]
        position = 5 if kind.flexible_version_q(version) else 4
        return kind.decode(content[position:], version=version, header=False)

    def _connection(self, node: int) -> socket.socket:
        if node not in self._sockets:
            host, port = self._addresses[node - 1].split(":")
            self._sockets[node] = socket.create_connection((host, int(port)), _SECONDS)
        return self._sockets[node]

    def partition(self, node: int = 1) -> Any:
        """
        Return the partition's metadata, as a broker knows it.
        """
        topic = MetadataRequest.MetadataRequestTopic(topic_id=None, name=self.topic)
        request = MetadataRequest(topics=[topic], allow_auto_topic_creation=False)
        return self.request(node, request, 12).topics[0].partitions[0]

    @property
    def leader(self) -> int:
        return 1 if len(self._addresses) == 1 else int(self.partition().leader_id)

    def init(self, name: str | None, timeout_ms: int = 60_000) -> Any:
        responses: list[Any] = []

        def blocker() -> str | None:
            if name is not None:
                # The first lookup of a coordinator creates the topic of the transactions' states.
                lookup = FindCoordinatorRequest(key_type=_TRANSACTION, coordinator_keys=[name])
                self.request(1, lookup, 4)
            responses.append(super(RawKafka, self).init(name, timeout_ms))
            code = responses[-1].error_code
            return f"the coordinator answers {code}" if code in _NOT_READY else None

        wait_until(blocker, _SECONDS)
        return responses[-1]

    def now(self) -> float:
        return time.time()

    def coordinator(self, name: str) -> int:  # noqa: ARG002
        return 1


def _read(connection: socket.socket, size: int) -> bytes:
    # A socket with a timeout does not block, so MSG_WAITALL may return a part.
    content = b""
    while len(content) < size:
        piece = connection.recv(size - len(content))
        if not piece:
            raise ConnectionResetError
        content += piece
    return content


def values(cluster: KafkaAccess, topic: str, **config: str) -> list[bytes | None]:
    """
    Return the values that librdkafka reads from a topic.
    """
    return [record.value for record in cluster.consume(topic, config)]


def wire_values(cluster: KafkaAccess, topic: str, isolation: str = "read_committed") -> list[bytes]:
    """
    Return the values that the wire engine reads from partition 0.
    """
    settings = fetching.settings(
        cluster.bootstrap, "wire", schema=fetching.VALUES, isolation_level=isolation
    )
    requested = OffsetRange(Tp(topic, 0), EARLIEST, LATEST)
    return [value for rows in fetch(requested, settings) for value in rows["value"].to_pylist()]
