"""
Short methods that send requests for one partition to a simulated or a real cluster.

Messages are encoded and decoded with kafka-python, independently of the code under test.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from kafka.protocol.admin import DescribeTransactionsRequest
from kafka.protocol.consumer import (
    FetchRequest,
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
)
from kafka.protocol.producer import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ProduceRequest,
)
from tests.support.record_batches import Record, batch_of, patched

_PRODUCER_EPOCH_AT, _SEQUENCE_AT = 51, 53
EARLIEST, LATEST = -2, -1


class KafkaRequests(ABC):
    """
    Requests go to partition 0 of ``topic``: to its leader, unless a test names a node.
    """

    topic = "t"

    @abstractmethod
    def request(self, node: int, request: Any, version: int) -> Any:
        """
        Send a request to a node, and return its response.
        """

    @abstractmethod
    def now(self) -> float:
        """
        Return the time of the brokers.
        """

    @property
    @abstractmethod
    def leader(self) -> int:
        """
        The leader of the partition.
        """

    @abstractmethod
    def coordinator(self, name: str) -> int:
        """
        Return the coordinator of a transactional id.
        """

    def produce(
        self, *values: bytes, node: int | None = None, version: int = 9, **fields: Any
    ) -> Any:
        """
        Write one batch, and return the partition's result.
        """
        request = self.produce_request(*values, **fields)
        return produced(self.request(node or self.leader, request, version))

    def produce_request(
        self,
        *values: bytes,
        acks: int = -1,
        timeout_ms: int = 30_000,
        transactional_id: str | None = None,
        data: bytes | None = None,
        **fields: Any,
    ) -> Any:
        topic = ProduceRequest.TopicProduceData
        records = data or batch(*values, now=self.now(), **fields)
        part = topic.PartitionProduceData(index=0, records=records)
        return ProduceRequest(
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=[topic(name=self.topic, partition_data=[part])],
        )

    def fetch(
        self, offset: int = 0, *, node: int | None = None, version: int = 12, **fields: Any
    ) -> Any:
        """
        Return the partition's part of a Fetch response.
        """
        request = self.fetch_request(offset, **fields)
        return fetched(self.request(node or self.leader, request, version))

    def fetch_request(
        self,
        offset: int = 0,
        *,
        committed: bool = False,
        epoch: int = -1,
        topic_id: Any = None,
        max_bytes: int = 1 << 20,
        min_bytes: int = 1,
        max_wait_ms: int = 0,
    ) -> Any:
        topic = FetchRequest.FetchTopic
        part = topic.FetchPartition(
            partition=0,
            current_leader_epoch=epoch,
            fetch_offset=offset,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=max_bytes,
        )
        return FetchRequest(
            replica_id=-1,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=int(committed),
            session_id=0,
            session_epoch=-1,
            topics=[topic(topic=self.topic, topic_id=topic_id, partitions=[part])],
            forgotten_topics_data=[],
            rack_id="",
        )

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
        partition = topic.ListOffsetsPartition(
            partition_index=0, current_leader_epoch=epoch, timestamp=timestamp
        )
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=int(committed),
            topics=[topic(name=self.topic, partitions=[partition])],
        )
        response = self.request(node or self.leader, request, version)
        return response.topics[0].partitions[0]

    def epoch_end(self, epoch: int, *, node: int | None = None, current: int = -1) -> Any:
        topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
        partition = topic.OffsetForLeaderPartition(
            partition=0, current_leader_epoch=current, leader_epoch=epoch
        )
        request = OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[topic(topic=self.topic, partitions=[partition])]
        )
        response = self.request(node or self.leader, request, 4)
        return response.topics[0].partitions[0]

    # --- Transactions ---------------------------------------------------------------------------

    def begin(self, name: str, timeout_ms: int = 60_000) -> tuple[int, int]:
        """
        Begin a transaction, add the partition to it, and return the producer id and epoch.
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

    def join(self, name: str, identity: tuple[int, int], topic: str | None = None) -> int:
        kind = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=identity[0],
            v3_and_below_producer_epoch=identity[1],
            v3_and_below_topics=[kind(name=topic or self.topic, partitions=[0])],
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

    def end_and_bump(self, name: str, identity: tuple[int, int], *, commit: bool) -> Any:
        """
        Return the response to EndTxn version 5, which bumps the epoch (KIP-890).
        """
        request = EndTxnRequest(
            transactional_id=name,
            producer_id=identity[0],
            producer_epoch=identity[1],
            committed=commit,
        )
        return self.request(self._coordinator(name), request, 5)

    def write(self, name: str, identity: tuple[int, int], *values: bytes, sequence: int = 0) -> Any:
        return self.produce(
            *values,
            transactional_id=name,
            producer_id=identity[0],
            epoch=identity[1],
            sequence=sequence,
            transactional=True,
        )

    def describe(self, name: str) -> Any:
        request = DescribeTransactionsRequest(transactional_ids=[name])
        return self.request(self.coordinator(name), request, 0).transaction_states[0]

    def _coordinator(self, name: str | None) -> int:
        return 1 if name is None else self.coordinator(name)


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
        Record(index, int(now * 1000), key, value)
        for index, (key, value) in enumerate(zip(names, values, strict=True))
    ]
    data = batch_of(
        *records, producer_id=producer_id, transactional=transactional, codec=codec
    ).encode()
    if producer_id >= 0:
        data = patched(data, _PRODUCER_EPOCH_AT, ">h", epoch)
        data = patched(data, _SEQUENCE_AT, ">i", sequence)
    return data
