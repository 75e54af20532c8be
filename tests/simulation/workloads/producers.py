"""
Independent producers, which fill the topics that the source workloads read.

Their requests are built with kafka-python and reach the brokers without faults of the network,
since the reader is under test. Each history has plain, idempotent and transactional producers.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kafka.protocol.producer import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceRequest,
    ProduceResponse,
)
from kafka.record.default_records import DefaultRecordBatchBuilder
from tests.simulation.kafka.codes import Code
from tests.simulation.kernel.world import Signal

if TYPE_CHECKING:
    from collections.abc import Collection

    from tests.simulation.kafka import SimulatedCluster
    from tests.simulation.kernel.world import Task, World

_REQUEST_SECONDS = 3.0
_RETRY_SECONDS = 0.2
_TRANSACTION_MS = 20_000
_TRANSACTIONS_V2 = 2
_NO_NODE = -1

_Topic = ProduceRequest.TopicProduceData
_TxnTopic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic


class LostProducerError(Exception):
    """
    A producer was fenced, or its sequence was lost; it must continue under a new identity.
    """


@dataclass
class Sequence:
    """
    A producer's identity, and its next sequence number in each partition.
    """

    producer_id: int = -1
    epoch: int = -1
    next: dict[tuple[str, int], int] = field(default_factory=dict)


class PlainClient:
    """
    Sends requests to brokers, and waits for the responses.
    """

    def __init__(self, world: World, cluster: SimulatedCluster, down: Collection[int]) -> None:
        self.world = world
        self.cluster = cluster
        self._down = down

    def request(self, node: int, request: Any, kind: Any, version: int) -> Any:
        """
        Return a broker's response, or None if it sends none in time.

        Brokers that lack this version get the highest one that they support.
        """
        version = min(version, self.cluster.max_version(request.API_KEY))
        request.API_VERSION = version
        request.with_header(1, "plain")
        frame = bytes(request.encode(version=version, header=True, framed=False))
        answers: list[bytes | None] = []
        answer_signal = Signal(self.world)

        def reply(data: bytes | None) -> None:
            answers.append(data)
            answer_signal.notify()

        if node < 0 or node in self._down:
            self.world.sleep(_RETRY_SECONDS)
            return None
        self.cluster.handle(node, frame, reply)
        self.world.wait(lambda: answers, _REQUEST_SECONDS, answer_signal)
        if not answers or answers[0] is None:
            return None
        return kind.decode(answers[0], version=version, header=True)


class PlainProducer:
    """
    Writes numbered values until :attr:`is_stopping`; a third of the transactions are aborted.
    """

    def __init__(
        self,
        client: PlainClient,
        name: str,
        partitions: list[tuple[str, int]],
        *,
        transactional: bool,
        version: int = 1,
        codec: int = 0,
    ) -> None:
        self._client = client
        self._world = client.world
        self._name = name
        self._partitions = partitions
        self._transactional = transactional
        # Transactions of version 2 add partitions by writing, and bump the epoch at each end.
        self._is_v2 = transactional and version == _TRANSACTIONS_V2
        self._codec = codec
        self._sequence = Sequence()
        self._number = 0
        #: The thread that runs it.
        self.task: Task | None = None
        self.acknowledged: set[bytes] = set()
        # A request without a response may still arrive, and end a later transaction of this epoch
        # (before KIP-890).
        self._has_late_request = False
        self.is_stopping = False

    def add_partition(self, tp: tuple[str, int]) -> None:
        """
        Write to one more partition from now on.
        """
        self._partitions = [*self._partitions, tp]

    def run(self) -> None:
        """
        Write batches, with pauses.
        """
        draw = self._world.random
        while not self.is_stopping:
            try:
                if self._sequence.producer_id < 0 or self._has_late_request:
                    self._begin_identity()
                self._write(draw.sample(self._partitions, draw.randint(1, len(self._partitions))))
            except LostProducerError:
                self._sequence = Sequence()
            self._world.sleep(draw.expovariate(1.2))

    def _write(self, partitions: list[tuple[str, int]]) -> None:
        draw = self._world.random
        written: set[bytes] = set()
        for tp in partitions:
            values = [self._value() for _ in range(draw.choice((1, 3, 8, 20)))]
            if self._transactional and not self._is_v2:
                self._add_partition(tp)
            self._send(tp, values)
            written.update(values)
        if self._transactional:
            if draw.random() < 0.2:
                self._world.sleep(draw.random() * 2.0)
            commits = draw.random() < 2 / 3
            self._end(commits=commits)
            if not commits:
                return
        self.acknowledged |= written

    def _value(self) -> bytes:
        self._number += 1
        return f"{self._name}:{self._number}".encode()

    # --- Requests, repeated until they succeed ----------------------------------------------------

    def _begin_identity(self) -> None:
        def attempt() -> bool:
            request = InitProducerIdRequest(
                transactional_id=self._name if self._transactional else None,
                transaction_timeout_ms=_TRANSACTION_MS,
                producer_id=-1,
                producer_epoch=-1,
            )
            response = self._client.request(self._coordinator(), request, InitProducerIdResponse, 4)
            if response is None or response.error_code:
                return False
            self._sequence = Sequence(response.producer_id, response.producer_epoch)
            self._has_late_request = False
            return True

        self._retry(attempt)

    def _add_partition(self, tp: tuple[str, int]) -> None:
        def attempt() -> bool:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self._name,
                v3_and_below_producer_id=self._sequence.producer_id,
                v3_and_below_producer_epoch=self._sequence.epoch,
                v3_and_below_topics=[_TxnTopic(name=tp[0], partitions=[tp[1]])],
            )
            response = self._client.request(
                self._coordinator(), request, AddPartitionsToTxnResponse, 3
            )
            if response is None:
                return False
            topics = response.results_by_topic_v3_and_below
            return self._check(topics[0].results_by_partition[0].partition_error_code)

        self._retry(attempt)

    def _end(self, *, commits: bool) -> None:
        def attempt() -> bool:
            request = EndTxnRequest(
                transactional_id=self._name,
                producer_id=self._sequence.producer_id,
                producer_epoch=self._sequence.epoch,
                committed=commits,
            )
            version = 5 if self._is_v2 else 3
            response = self._client.request(self._coordinator(), request, EndTxnResponse, version)
            self._has_late_request |= response is None and not self._is_v2
            if response is None or not self._check(response.error_code):
                return False
            if self._is_v2:
                self._sequence = Sequence(response.producer_id, response.producer_epoch)
            return True

        self._retry(attempt)

    def _send(self, tp: tuple[str, int], values: list[bytes]) -> None:
        first = self._sequence.next.get(tp, 0)
        data = self._batch(values, first)

        def attempt() -> bool:
            part = _Topic.PartitionProduceData(index=tp[1], records=data)
            request = ProduceRequest(
                transactional_id=self._name if self._transactional else None,
                acks=-1,
                timeout_ms=2_000,
                topic_data=[_Topic(name=tp[0], partition_data=[part])],
            )
            cluster, version = self._client.cluster, 12 if self._is_v2 else 9
            leader = cluster.leader(*tp) if cluster.has_topic(tp[0]) else _NO_NODE
            response = self._client.request(leader, request, ProduceResponse, version)
            if response is None:
                return False
            return self._check(response.responses[0].partition_responses[0].error_code)

        self._retry(attempt)
        self._sequence.next[tp] = first + len(values)

    def _batch(self, values: list[bytes], first: int) -> bytes:
        builder = DefaultRecordBatchBuilder(
            magic=2,
            compression_type=self._codec,
            is_transactional=self._transactional,
            producer_id=self._sequence.producer_id,
            producer_epoch=self._sequence.epoch,
            base_sequence=first,
            batch_size=1 << 20,
        )
        now = int(self._world.now() * 1000)
        for offset, value in enumerate(values):
            builder.append(offset, now, value[-1:], value, [])
        data = bytearray(builder.build())
        struct.pack_into(">i", data, 12, -1)
        return bytes(data)

    def _check(self, code: int) -> bool:
        """
        Return whether a request succeeded; raise if it never will.
        """
        fatal = {
            Code.PRODUCER_FENCED,
            Code.INVALID_PRODUCER_EPOCH,
            Code.INVALID_TXN_STATE,
            Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
            Code.INVALID_PRODUCER_ID_MAPPING,
            Code.TRANSACTION_ABORTABLE,
        }
        if code in fatal:
            raise LostProducerError(code)
        return not code

    def _retry(self, attempt: Any) -> None:
        while not attempt():
            if self.is_stopping and self._world.random.random() < 0.05:
                # A producer that dies leaves its transaction open until it times out.
                raise LostProducerError
            self._world.sleep(_RETRY_SECONDS)

    def _coordinator(self) -> int:
        if not self._transactional:
            return self._world.random.choice(self._client.cluster.node_ids)
        return self._client.cluster.coordinator(self._name)
