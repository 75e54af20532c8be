"""
A simulated cluster for tests, with a clock of its own, and requests sent as bytes.
"""

from __future__ import annotations

import heapq
import random
from itertools import count
from typing import TYPE_CHECKING, Any

from kafka.protocol.consumer import (
    FetchRequest,
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
)
from kafka.protocol.metadata import ApiVersionsResponse
from kafka.protocol.producer import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ProduceRequest,
)
from tests.simulation.kafka import ClusterSettings, SimulatedCluster
from tests.support.record_batches import Record, batch_of, patched

if TYPE_CHECKING:
    from collections.abc import Callable

_PRODUCER_EPOCH_AT, _SEQUENCE_AT = 51, 53
EARLIEST, LATEST = -2, -1


class EventQueue:
    """
    Runs actions in the order of their times; the clock jumps from one to the next.
    """

    def __init__(self) -> None:
        self._now = 1_700_000_000.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    def now(self) -> float:
        return self._now

    def call_later(self, seconds: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self._now + seconds, next(self._order), action))

    def step(self) -> bool:
        """
        Run the next action, and return False if there is none.
        """
        if not self._events:
            return False
        self._now, _, action = heapq.heappop(self._events)
        action()
        return True

    def run(self, seconds: float) -> None:
        """
        Run what happens within this time.
        """
        end = self._now + seconds
        while self._events and self._events[0][0] <= end:
            self.step()
        self._now = end


class Pending:
    """
    A request that has been sent; ``response`` is None until its response has come.
    """

    def __init__(self, kind: Any, version: int) -> None:
        self._kind, self._version = kind, version
        self.response: Any = None
        self.closed = False
        self.replies = 0

    @property
    def done(self) -> bool:
        return self.closed or self.response is not None

    def receive(self, content: bytes | None) -> None:
        self.replies += 1
        if content is None:
            self.closed = True
            return
        flexible = self._kind.flexible_version_q(self._version)
        at = 5 if flexible and self._kind is not ApiVersionsResponse else 4
        self.response = self._kind.decode(content[at:], version=self._version, header=False)


class SimulatedKafka:
    """
    A cluster with its event queue, and requests for one partition by short methods.

    Requests go to the leader that the controller knows, unless a test names a node.
    """

    def __init__(self, brokers: int = 3, seed: int = 0, **settings: Any) -> None:
        self.time = EventQueue()
        self.cluster = SimulatedCluster(
            brokers, self.time, random.Random(seed), ClusterSettings(**settings)
        )

    # --- Any request ----------------------------------------------------------------------------

    def send(self, node: int, request: Any, version: int) -> Pending:
        """
        Send a request without waiting.
        """
        request.API_VERSION = version
        request.with_header(7, "test")
        frame = bytes(request.encode(version=version, header=True))
        pending = Pending(request.header.get_response_class()[None], version)
        self.cluster.handle(node, frame, pending.receive)
        return pending

    def request(self, node: int, request: Any, version: int) -> Any:
        """
        Return the response, as soon as it comes.
        """
        return self.response(self.send(node, request, version))

    def response(self, pending: Pending) -> Any:
        while not pending.done:
            assert self.time.step(), "the cluster has nothing left to do"
        assert not pending.closed, "the broker closed the connection"
        return pending.response

    # --- One partition --------------------------------------------------------------------------

    def produce(
        self, *values: bytes, node: int | None = None, version: int = 9, **fields: Any
    ) -> Any:
        """
        Write one batch to partition 0 of the topic ``t``, and return the partition's result.
        """
        pending = self.send_produce(*values, node=node, version=version, **fields)
        return produced(self.response(pending))

    def send_produce(
        self,
        *values: bytes,
        node: int | None = None,
        version: int = 9,
        acks: int = -1,
        timeout_ms: int = 30_000,
        transactional_id: str | None = None,
        data: bytes | None = None,
        **fields: Any,
    ) -> Pending:
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=[
                ProduceRequest.TopicProduceData(
                    name="t",
                    partition_data=[
                        ProduceRequest.TopicProduceData.PartitionProduceData(
                            index=0,
                            records=data or batch(*values, now=self.time.now(), **fields),
                        )
                    ],
                )
            ],
        )
        return self.send(node or self.leader, request, version)

    @property
    def leader(self) -> int:
        return self.cluster.leader("t", 0)

    def fetch(self, offset: int = 0, **fields: Any) -> Any:
        """
        Return the partition's part of a Fetch response.
        """
        return fetched(self.response(self.send_fetch(offset, **fields)))

    def send_fetch(
        self,
        offset: int = 0,
        *,
        node: int | None = None,
        version: int = 12,
        committed: bool = False,
        epoch: int = -1,
        topic_id: Any = None,
        max_bytes: int = 1 << 20,
        min_bytes: int = 1,
        max_wait_ms: int = 0,
    ) -> Pending:
        topic = FetchRequest.FetchTopic
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=int(committed),
            session_id=0,
            session_epoch=-1,
            topics=[
                topic(
                    topic="t",
                    topic_id=topic_id,
                    partitions=[
                        topic.FetchPartition(
                            partition=0,
                            current_leader_epoch=epoch,
                            fetch_offset=offset,
                            last_fetched_epoch=-1,
                            log_start_offset=-1,
                            partition_max_bytes=max_bytes,
                        )
                    ],
                )
            ],
            forgotten_topics_data=[],
            rack_id="",
        )
        return self.send(node or self.leader, request, version)

    def list_offset(
        self,
        timestamp: int = LATEST,
        *,
        node: int | None = None,
        committed: bool = False,
        epoch: int = -1,
        version: int = 7,
    ) -> Any:
        topic = ListOffsetsRequest.ListOffsetsTopic
        wanted = topic.ListOffsetsPartition(
            partition_index=0, current_leader_epoch=epoch, timestamp=timestamp
        )
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=int(committed),
            topics=[topic(name="t", partitions=[wanted])],
        )
        response = self.request(node or self.leader, request, version)
        return response.topics[0].partitions[0]

    def epoch_end(self, epoch: int, *, node: int | None = None, current: int = -1) -> Any:
        topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
        wanted = topic.OffsetForLeaderPartition(
            partition=0, current_leader_epoch=current, leader_epoch=epoch
        )
        request = OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[topic(topic="t", partitions=[wanted])]
        )
        response = self.request(node or self.leader, request, 4)
        return response.topics[0].partitions[0]

    # --- Transactions ---------------------------------------------------------------------------

    def begin(self, name: str, timeout_ms: int = 60_000) -> tuple[int, int]:
        """
        Return the producer id and epoch of a transaction that partition 0 of ``t`` has joined.
        """
        response = self.init(name, timeout_ms)
        assert response.error_code == 0, response
        identity = (response.producer_id, response.producer_epoch)
        assert self.join(name, identity) == 0
        return identity

    def init(self, name: str | None, timeout_ms: int = 60_000) -> Any:
        request = InitProducerIdRequest(
            transactional_id=name,
            transaction_timeout_ms=timeout_ms,
            producer_id=-1,
            producer_epoch=-1,
        )
        return self.request(self._coordinator(name), request, 4)

    def join(self, name: str, identity: tuple[int, int], topic: str = "t") -> int:
        kind = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=identity[0],
            v3_and_below_producer_epoch=identity[1],
            v3_and_below_topics=[kind(name=topic, partitions=[0])],
        )
        response = self.request(self._coordinator(name), request, 3)
        result = response.results_by_topic_v3_and_below[0].results_by_partition[0]
        return int(result.partition_error_code)

    def end(
        self, name: str, identity: tuple[int, int], *, commit: bool, node: int | None = None
    ) -> int:
        request = EndTxnRequest(
            transactional_id=name,
            producer_id=identity[0],
            producer_epoch=identity[1],
            committed=commit,
        )
        return int(self.request(node or self._coordinator(name), request, 4).error_code)

    def write(self, name: str, identity: tuple[int, int], *values: bytes, sequence: int = 0) -> Any:
        return self.produce(
            *values,
            transactional_id=name,
            producer_id=identity[0],
            epoch=identity[1],
            sequence=sequence,
            transactional=True,
        )

    def _coordinator(self, name: str | None) -> int:
        return 1 if name is None else self.cluster.coordinator(name)


def produced(response: Any) -> Any:
    return response.responses[0].partition_responses[0]


def fetched(response: Any) -> Any:
    return response.responses[0].partitions[0]


def batch(
    *values: bytes,
    now: float = 1_700_000_000.0,
    producer_id: int = -1,
    epoch: int = 0,
    sequence: int = 0,
    transactional: bool = False,
    codec: int = 0,
    keys: tuple[bytes | None, ...] = (),
) -> bytes:
    """
    Return a batch as a producer sends it.
    """
    names = [*keys, *([None] * (len(values) - len(keys)))]
    records = [
        Record(at, int(now * 1000), key, value)
        for at, (key, value) in enumerate(zip(names, values, strict=True))
    ]
    data = batch_of(
        *records, producer_id=producer_id, transactional=transactional, codec=codec
    ).encode()
    if producer_id >= 0:
        data = patched(data, _PRODUCER_EPOCH_AT, ">h", epoch)
        data = patched(data, _SEQUENCE_AT, ">i", sequence)
    return data
