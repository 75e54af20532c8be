"""
The responses of stub brokers: a small cluster in memory, whose methods a test overrides.

Messages are decoded and encoded with kafka-python, independently of the code under test. Logs and
transactions are kept, but uncommitted records are visible to every reader.
"""

from __future__ import annotations

import struct
import uuid
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kafka.protocol.admin import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from kafka.protocol.consumer import (
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)
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
from tests.support.kafka_schemas import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse

PRODUCE, FETCH, LIST_OFFSETS, METADATA = 0, 1, 2, 3
FIND_COORDINATOR, API_VERSIONS, INIT_PRODUCER_ID, OFFSET_FOR_LEADER_EPOCH = 10, 18, 22, 23
ADD_PARTITIONS, END_TXN, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 24, 26, 65, 66
DESCRIBE_CONFIGS = 32
DESCRIBE_GROUPS, LIST_GROUPS, DELETE_GROUPS, CONSUMER_GROUP_DESCRIBE = 15, 16, 42, 69

_REQUESTS: dict[int, Any] = {
    PRODUCE: ProduceRequest,
    FETCH: FetchRequest,
    LIST_OFFSETS: ListOffsetsRequest,
    METADATA: MetadataRequest,
    FIND_COORDINATOR: FindCoordinatorRequest,
    API_VERSIONS: ApiVersionsRequest,
    INIT_PRODUCER_ID: InitProducerIdRequest,
    OFFSET_FOR_LEADER_EPOCH: OffsetForLeaderEpochRequest,
    ADD_PARTITIONS: AddPartitionsToTxnRequest,
    END_TXN: EndTxnRequest,
    DESCRIBE_CONFIGS: DescribeConfigsRequest,
    DESCRIBE_TRANSACTIONS: DescribeTransactionsRequest,
    LIST_TRANSACTIONS: ListTransactionsRequest,
    DESCRIBE_GROUPS: DescribeGroupsRequest,
    LIST_GROUPS: ListGroupsRequest,
    DELETE_GROUPS: DeleteGroupsRequest,
    CONSUMER_GROUP_DESCRIBE: ConsumerGroupDescribeRequest,
}

_UNKNOWN_TOPIC, _OUT_OF_RANGE, _UNKNOWN_ID, _PRODUCER_FENCED = 3, 1, 105, 90
_INVALID_STATE, _UNSUPPORTED_VERSION = 48, 35
_GROUP_NOT_FOUND, _NON_EMPTY_GROUP = 69, 68
_NO_OPERATIONS = -(2**31)
_EARLIEST = -2
_NO_BYTES = b""

# Positions in a record batch: base offset, length, partition leader epoch, last offset delta.
_BASE, _LENGTH, _EPOCH, _LAST_DELTA = 0, 8, 12, 23
_LENGTH_END = 12


class FetchAnswer(NamedTuple):
    """
    A stub's Fetch response for one partition; ``preferred`` is a read replica (KIP-392) or -1.
    """

    error: int
    high_watermark: int
    records: bytes = _NO_BYTES
    preferred: int = -1
    log_start: int = 0
    aborted: tuple[tuple[int, int], ...] = ()


@dataclass
class StubTransaction:
    """
    The state of a transactional id; ``state`` is Kafka's name of it.
    """

    producer_id: int
    epoch: int = 0
    state: str = "Empty"
    timeout_ms: int = 60_000
    partitions: set[tuple[str, int]] = field(default_factory=set)
    started_ms: int = -1


@dataclass
class StubGroup:
    """
    A group with (client id, instance id) of its members; ``kind`` is ``classic`` or ``consumer``.
    """

    members: list[tuple[str, str | None]] = field(default_factory=list)
    kind: str = "classic"
    protocol_type: str = "consumer"

    @property
    def state(self) -> str:
        """
        Kafka's name of the state.
        """
        return "Stable" if self.members else "Empty"


def record_batch(first: int, values: list[bytes], epoch: int = 0) -> bytes:
    """
    Return a record batch (magic 2) as a broker stores it; the checksum does not cover the epoch.
    """
    from kafka.record import MemoryRecordsBuilder

    builder = MemoryRecordsBuilder(magic=2, compression_type=0, batch_size=1 << 24, offset=0)
    for value in values:
        builder.append(timestamp=1_700_000_000_000, key=None, value=value)
    builder.close()
    batch = bytearray(builder.buffer())
    struct.pack_into(">q", batch, _BASE, first)
    struct.pack_into(">i", batch, _EPOCH, epoch)
    return bytes(batch)


class Behaviour:
    """
    The responses of ``brokers`` nodes, numbered from 0; ``topics`` maps names to partition counts.

    Every partition has ``high_watermark`` records ``v0``, ``v1``..., unless records were produced
    to it. A test overrides methods or sets attributes; the behaviour runs in its own process.
    """

    def __init__(self, **attributes: Any) -> None:
        self.brokers = 1
        self.topics: dict[str, int] = {"t": 1}
        self.high_watermark = 1000
        self.batch_records = 100
        #: Whether throttled Fetch responses have the partition, as with some brokers other than
        #: Kafka's.
        self.throttles_with_records = False
        self.versions: dict[int, tuple[int, int]] = {
            PRODUCE: (3, 9),
            FETCH: (4, 12),
            LIST_OFFSETS: (2, 7),
            METADATA: (4, 12),
            FIND_COORDINATOR: (1, 4),
            API_VERSIONS: (0, 3),
            INIT_PRODUCER_ID: (0, 4),
            OFFSET_FOR_LEADER_EPOCH: (2, 4),
            ADD_PARTITIONS: (0, 3),
            END_TXN: (0, 3),
            DESCRIBE_CONFIGS: (1, 4),
            DESCRIBE_TRANSACTIONS: (0, 0),
            LIST_TRANSACTIONS: (0, 0),
            DESCRIBE_GROUPS: (0, 6),
            LIST_GROUPS: (0, 5),
            DELETE_GROUPS: (0, 2),
            CONSUMER_GROUP_DESCRIBE: (0, 1),
        }
        self.transactions: dict[str, StubTransaction] = {}
        self.groups: dict[str, StubGroup] = {}
        #: The operations that the user may use on each group, by Kafka's numbers.
        self.group_operations: frozenset[int] = frozenset({3, 6, 8})
        self.logs: dict[tuple[str, int], list[bytes]] = {}
        #: The port of each node, set by the process.
        self.ports: list[int] = []
        self.requests: Counter[int] = Counter()
        #: How long to delay the current Fetch response because there is nothing to fetch.
        self.wait_seconds = 0.0
        self._next_producer_id = 1000
        self._metadata: dict[tuple[Any, ...], Any] = {}
        self.__dict__.update(attributes)

    # --- What tests override --------------------------------------------------------------------

    def delay(self, node: int, api_key: int) -> float:  # noqa: ARG002 (for overriding methods)
        """
        Return the seconds that a response takes; a connection's requests are handled in order.
        """
        return 0.0

    def host(self, node: int) -> str:  # noqa: ARG002
        """
        Return the advertised host of a node.
        """
        return "127.0.0.1"

    def port(self, node: int) -> int:
        """
        Return the advertised port of a node.
        """
        return self.ports[node]

    def throttle_ms(self, node: int, api_key: int) -> int:  # noqa: ARG002
        """
        Return the throttle time of a response.
        """
        return 0

    def leader(self, topic: str, partition: int) -> int:  # noqa: ARG002
        """
        Return the leader of a partition, -1 for none.
        """
        return partition % self.brokers

    def leader_epoch(self, topic: str, partition: int) -> int:  # noqa: ARG002
        """
        Return the partition's leader epoch.
        """
        return 0

    def topic_error(self, node: int, topic: str) -> int:  # noqa: ARG002
        """
        Return the error code of a topic in a node's metadata.
        """
        return 0

    def topics_of(self, node: int) -> dict[str, int]:  # noqa: ARG002
        """
        Return the topics in a node's metadata.
        """
        return self.topics

    def topic_settings(self, node: int, topic: str) -> tuple[int, dict[str, str]]:  # noqa: ARG002
        """
        Return an error code, and the settings of a topic.
        """
        policy = "compact" if topic.endswith("-ledger") else "delete"
        return 0, {"cleanup.policy": policy}

    def replicas(self, topic: str, leader: int) -> list[int]:  # noqa: ARG002
        """
        Return the nodes with replicas of a topic's partition.
        """
        return [leader]

    def offsets(self, node: int, topic: str, partition: int, timestamp: int) -> tuple[int, int]:  # noqa: ARG002
        """
        Return an error code, and the offset for a timestamp (-2 earliest, -1 latest).
        """
        return 0, 0 if timestamp == _EARLIEST else self.end(topic, partition)

    def fetch(self, node: int, topic: str, partition: int, offset: int) -> FetchAnswer:  # noqa: ARG002
        """
        Return the records from an offset on.
        """
        end = self.end(topic, partition)
        if not 0 <= offset <= end:
            return FetchAnswer(_OUT_OF_RANGE, -1)
        log = self.logs.get((topic, partition))
        if log is not None:
            return FetchAnswer(
                0, end, b"".join(batch for batch in log if _next_offset(batch) > offset)
            )
        last = min(offset + self.batch_records, end)
        values = [b"v%d" % number for number in range(offset, last)]
        epoch = self.leader_epoch(topic, partition)
        return FetchAnswer(0, end, record_batch(offset, values, epoch) if values else _NO_BYTES)

    def epoch_end(self, node: int, topic: str, partition: int, epoch: int) -> tuple[int, int]:  # noqa: ARG002
        """
        Return the largest epoch up to the given one, and its end offset.
        """
        return min(epoch, self.leader_epoch(topic, partition)), self.end(topic, partition)

    def epoch_error(self, node: int, topic: str, partition: int) -> int:  # noqa: ARG002
        """
        Return the error code of a request for the end of an epoch.
        """
        return 0

    def coordinator(self, name: str) -> int:
        """
        Return the coordinator of a transactional id or a group.
        """
        return sum(name.encode()) % self.brokers

    def coordinator_error(self, node: int, name: str) -> int:  # noqa: ARG002
        """
        Return the error code of a node's response to a request for a coordinator.
        """
        return 0

    def group_error(self, node: int, api_key: int, group: str) -> int:  # noqa: ARG002
        """
        Return the error code of a group, or of all groups of a node (the empty name).
        """
        return 0

    def end_txn(self, node: int, name: str, producer_id: int, epoch: int, *, commit: bool) -> int:  # noqa: ARG002
        """
        End a transaction, and return an error code.
        """
        transaction = self.transactions.get(name)
        if transaction is None or (transaction.producer_id, transaction.epoch) != (
            producer_id,
            epoch,
        ):
            return _PRODUCER_FENCED
        end_state = "CompleteCommit" if commit else "CompleteAbort"
        if transaction.state not in {"Ongoing", end_state}:
            return _INVALID_STATE
        transaction.state = end_state
        return 0

    # --- Responses ------------------------------------------------------------------------------

    def end(self, topic: str, partition: int) -> int:
        """
        Return the log end offset.
        """
        log = self.logs.get((topic, partition))
        if log is None:
            return self.high_watermark
        return _next_offset(log[-1]) if log else 0

    def answer(self, node: int, api_key: int, version: int, body: bytes) -> bytes | None:
        """
        Return the body of the response to a request's body, or None for no response.
        """
        if api_key == API_VERSIONS:
            return self._api_versions(version)
        request = _REQUESTS[api_key].decode(body, version=version, header=False)
        response = getattr(self, f"_on_{api_key}")(node, request)
        if isinstance(response, bytes):
            return response
        return bytes(response.encode(version=version, header=False))

    def _api_versions(self, version: int) -> bytes:
        is_supported = version <= self.versions[API_VERSIONS][1]
        keys = [
            ApiVersionsResponse.ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in self.versions.items()
        ]
        error = 0 if is_supported else _UNSUPPORTED_VERSION
        response = ApiVersionsResponse(error_code=error, api_keys=keys, throttle_time_ms=0)
        return bytes(response.encode(version=version if is_supported else 0, header=False))

    def _on_3(self, node: int, request: Any) -> Any:
        partition_counts = self.topics_of(node)
        names = (
            partition_counts if request.topics is None else [topic.name for topic in request.topics]
        )
        topics = [self._topic(node, name, partition_counts) for name in names]
        return MetadataResponse(
            throttle_time_ms=self.throttle_ms(node, METADATA),
            brokers=[
                MetadataResponse.MetadataResponseBroker(
                    node_id=broker, host=self.host(broker), port=self.port(broker), rack=None
                )
                for broker in range(self.brokers)
            ],
            cluster_id="stub",
            controller_id=0,
            topics=topics,
        )

    def _topic(self, node: int, name: str, partition_counts: dict[str, int]) -> Any:
        topic = MetadataResponse.MetadataResponseTopic
        error = self.topic_error(node, name) if name in partition_counts else _UNKNOWN_TOPIC
        count = partition_counts[name] if not error else 0
        leaders = [
            (self.leader(name, number), self.leader_epoch(name, number)) for number in range(count)
        ]
        topic_id = uuid.UUID(int=0) if error == _UNKNOWN_TOPIC else self.topic_id(name)
        key = (name, error, topic_id, tuple(leaders))
        # Cached: thousands of objects that rarely change.
        if key not in self._metadata:
            self._metadata[key] = topic(
                error_code=error,
                name=name,
                topic_id=topic_id,
                is_internal=False,
                partitions=[
                    topic.MetadataResponsePartition(
                        error_code=0 if leader >= 0 else 5,
                        partition_index=index,
                        leader_id=leader,
                        leader_epoch=epoch,
                        replica_nodes=self.replicas(name, max(leader, 0)),
                        isr_nodes=[max(leader, 0)],
                        offline_replicas=[],
                    )
                    for index, (leader, epoch) in enumerate(leaders)
                ],
            )
        return self._metadata[key]

    def topic_id(self, topic: str) -> uuid.UUID:
        """
        Return the id of a topic.
        """
        return uuid.uuid5(uuid.NAMESPACE_OID, topic)

    def _on_2(self, node: int, request: Any) -> Any:
        kind = ListOffsetsResponse.ListOffsetsTopicResponse

        def one(topic: str, requested: Any) -> Any:
            number = requested.partition_index
            error, offset = self.offsets(node, topic, number, requested.timestamp)
            return kind.ListOffsetsPartitionResponse(
                partition_index=number,
                error_code=error,
                timestamp=-1,
                offset=offset,
                leader_epoch=self.leader_epoch(topic, number),
            )

        topics = [
            kind(
                name=topic.name,
                partitions=[one(topic.name, requested) for requested in topic.partitions],
            )
            for topic in request.topics
        ]
        throttle = self.throttle_ms(node, LIST_OFFSETS)
        return ListOffsetsResponse(throttle_time_ms=throttle, topics=topics)

    def _on_1(self, node: int, request: Any) -> Any:
        kind = FetchResponse.FetchableTopicResponse

        waits = True

        def one(topic: str, requested: Any) -> Any:
            nonlocal waits
            answer = self.fetch(node, topic, requested.partition, requested.fetch_offset)
            at_end = not answer.error and requested.fetch_offset >= answer.high_watermark
            waits = waits and at_end and answer.preferred < 0
            return kind.PartitionData(
                partition_index=requested.partition,
                error_code=answer.error,
                high_watermark=answer.high_watermark,
                last_stable_offset=answer.high_watermark,
                log_start_offset=answer.log_start,
                aborted_transactions=[
                    kind.PartitionData.AbortedTransaction(producer_id=producer, first_offset=first)
                    for first, producer in answer.aborted
                ],
                preferred_read_replica=answer.preferred,
                records=answer.records,
            )

        topics = [
            kind(
                topic=topic.topic,
                partitions=[one(topic.topic, requested) for requested in topic.partitions],
            )
            for topic in request.topics
        ]
        throttle = self.throttle_ms(node, FETCH)
        if throttle > 0 and not self.throttles_with_records:
            # As brokers since 2.0 (KIP-219): SessionlessFetchContext.getThrottledResponse.
            topics = []
        self.wait_seconds = request.max_wait_ms / 1000 if waits else 0.0
        return FetchResponse(
            throttle_time_ms=throttle, error_code=0, session_id=0, responses=topics
        )

    def _on_23(self, node: int, request: Any) -> Any:
        kind = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult

        def one(topic: str, requested: Any) -> Any:
            epoch, end = self.epoch_end(node, topic, requested.partition, requested.leader_epoch)
            return kind.EpochEndOffset(
                error_code=self.epoch_error(node, topic, requested.partition),
                partition=requested.partition,
                leader_epoch=epoch,
                end_offset=end,
            )

        topics = [
            kind(
                topic=topic.topic,
                partitions=[one(topic.topic, requested) for requested in topic.partitions],
            )
            for topic in request.topics
        ]
        return OffsetForLeaderEpochResponse(throttle_time_ms=0, topics=topics)

    def _on_0(self, node: int, request: Any) -> Any:
        kind = ProduceResponse.TopicProduceResponse

        def one(topic: str, sent: Any) -> Any:
            first = self._append(topic, sent.index, bytes(sent.records))
            return kind.PartitionProduceResponse(
                index=sent.index, error_code=0, base_offset=first, log_append_time_ms=-1
            )

        topics = [
            kind(
                name=topic.name,
                partition_responses=[one(topic.name, sent) for sent in topic.partition_data],
            )
            for topic in request.topic_data
        ]
        return ProduceResponse(responses=topics, throttle_time_ms=self.throttle_ms(node, PRODUCE))

    def _append(self, topic: str, partition: int, records: bytes) -> int:
        log = self.logs.setdefault((topic, partition), [])
        first, position = self.end(topic, partition), 0
        while position < len(records):
            (length,) = struct.unpack_from(">i", records, position + _LENGTH)
            batch = bytearray(records[position : position + _LENGTH_END + length])
            struct.pack_into(">q", batch, _BASE, self.end(topic, partition))
            struct.pack_into(">i", batch, _EPOCH, self.leader_epoch(topic, partition))
            log.append(bytes(batch))
            position += len(batch)
        return first

    def _on_10(self, node: int, request: Any) -> Any:
        names = request.coordinator_keys or []
        coordinators = [
            FindCoordinatorResponse.Coordinator(
                key=name,
                node_id=self.coordinator(name),
                host=self.host(self.coordinator(name)),
                port=self.port(self.coordinator(name)),
                error_code=self.coordinator_error(node, name),
                error_message=None,
            )
            for name in names
        ]
        coordinator = self.coordinator(request.key or "")
        return FindCoordinatorResponse(
            throttle_time_ms=0,
            error_code=self.coordinator_error(node, request.key or ""),
            error_message=None,
            node_id=coordinator,
            host=self.host(coordinator),
            port=self.port(coordinator),
            coordinators=coordinators,
        )

    def _on_15(self, node: int, request: Any) -> Any:
        kind = DescribeGroupsResponse.DescribedGroup

        def one(name: str) -> Any:
            error, group = self.group_error(node, DESCRIBE_GROUPS, name), self.groups.get(name)
            is_described = group is not None and group.kind == "classic" and not error
            members = group.members if group is not None and is_described else []
            return kind(
                error_code=error,
                error_message=None,
                group_id=name,
                group_state=group.state if group is not None and is_described else "Dead",
                protocol_type="consumer",
                protocol_data="range",
                members=[
                    kind.DescribedGroupMember(
                        member_id=f"{client}-1",
                        group_instance_id=instance,
                        client_id=client,
                        client_host="/127.0.0.1",
                        member_metadata=b"metadata",
                        member_assignment=b"",
                    )
                    for client, instance in members
                ],
                authorized_operations=self.group_operations
                if request.include_authorized_operations
                else {31},
            )

        return DescribeGroupsResponse(
            throttle_time_ms=0, groups=[one(name) for name in request.groups]
        )

    def _on_69(self, node: int, request: Any) -> Any:
        kind = ConsumerGroupDescribeResponse.DescribedGroup
        nothing = kind.Member.Assignment(topic_partitions=[])

        def one(name: str) -> Any:
            error = self.group_error(node, CONSUMER_GROUP_DESCRIBE, name)
            group = self.groups.get(name)
            if group is None or group.kind != "consumer":
                error = error or _GROUP_NOT_FOUND
            members = group.members if group is not None and not error else []
            return kind(
                error_code=error,
                error_message=None,
                group_id=name,
                group_state=group.state if group is not None and not error else "",
                group_epoch=1,
                assignment_epoch=1,
                assignor_name="uniform",
                members=[
                    kind.Member(
                        member_id=f"{client}-1",
                        instance_id=instance,
                        rack_id=None,
                        member_epoch=1,
                        client_id=client,
                        client_host="/127.0.0.1",
                        subscribed_topic_names=["t"],
                        subscribed_topic_regex=None,
                        assignment=nothing,
                        target_assignment=nothing,
                        member_type=1,
                    )
                    for client, instance in members
                ],
                authorized_operations=sum(1 << bit for bit in self.group_operations)
                if request.include_authorized_operations
                else _NO_OPERATIONS,
            )

        return ConsumerGroupDescribeResponse(
            throttle_time_ms=0, groups=[one(name) for name in request.group_ids]
        )

    def _on_16(self, node: int, request: Any) -> Any:  # noqa: ARG002
        kind = ListGroupsResponse.ListedGroup
        groups = [
            kind(
                group_id=name,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=group.kind,
            )
            for name, group in self.groups.items()
            if self.coordinator(name) == node
        ]
        error = self.group_error(node, LIST_GROUPS, "")
        return ListGroupsResponse(
            throttle_time_ms=0, error_code=error, groups=[] if error else groups
        )

    def _on_42(self, node: int, request: Any) -> Any:
        kind = DeleteGroupsResponse.DeletableGroupResult

        def one(name: str) -> int:
            error = self.group_error(node, DELETE_GROUPS, name)
            if error or name not in self.groups:
                return error or _GROUP_NOT_FOUND
            if self.groups[name].members:
                return _NON_EMPTY_GROUP
            del self.groups[name]
            return 0

        results = [kind(group_id=name, error_code=one(name)) for name in request.groups_names]
        return DeleteGroupsResponse(throttle_time_ms=0, results=results)

    def _on_22(self, node: int, request: Any) -> Any:  # noqa: ARG002
        name = request.transactional_id
        transaction = None if name is None else self.transactions.get(name)
        if transaction is None:
            self._next_producer_id += 1
            transaction = StubTransaction(self._next_producer_id, epoch=-1)
        transaction.epoch += 1
        transaction.state = "CompleteAbort" if transaction.state == "Ongoing" else transaction.state
        transaction.timeout_ms = request.transaction_timeout_ms
        transaction.partitions = set()
        if name is not None:
            self.transactions[name] = transaction
        return InitProducerIdResponse(
            throttle_time_ms=0,
            error_code=0,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.epoch,
        )

    def _on_24(self, node: int, request: Any) -> Any:  # noqa: ARG002
        topics = request.v3_and_below_topics
        added = {
            (added_topic.name, partition)
            for added_topic in topics
            for partition in added_topic.partitions
        }
        transaction = self.transactions.get(request.v3_and_below_transactional_id)
        producer = (request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
        error = (
            0
            if transaction and (transaction.producer_id, transaction.epoch) == producer
            else _PRODUCER_FENCED
        )
        if transaction and not error:
            transaction.state = "Ongoing"
            transaction.partitions |= added
        topic = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
        partition = topic.AddPartitionsToTxnPartitionResult
        return AddPartitionsToTxnResponse(
            throttle_time_ms=0,
            results_by_topic_v3_and_below=[
                topic(
                    name=added_topic.name,
                    results_by_partition=[
                        partition(partition_index=added, partition_error_code=error)
                        for added in added_topic.partitions
                    ],
                )
                for added_topic in topics
            ],
        )

    def _on_26(self, node: int, request: Any) -> Any:
        error = self.end_txn(
            node,
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            commit=request.committed,
        )
        return EndTxnResponse(throttle_time_ms=0, error_code=error)

    def _on_32(self, node: int, request: Any) -> Any:
        kind = DescribeConfigsResponse.DescribeConfigsResult

        def one(resource: Any) -> Any:
            error, values = self.topic_settings(node, resource.resource_name)
            # Null: all settings.
            keys = values if resource.configuration_keys is None else resource.configuration_keys
            settings = [
                kind.DescribeConfigsResourceResult(
                    name=name,
                    value=value,
                    read_only=False,
                    config_source=1,
                    is_sensitive=False,
                    synonyms=[],
                    config_type=7,
                    documentation=None,
                )
                for name, value in values.items()
                if name in keys
            ]
            return kind(
                error_code=error,
                error_message=None,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=[] if error else settings,
            )

        return DescribeConfigsResponse(
            throttle_time_ms=0, results=[one(resource) for resource in request.resources]
        )

    def _on_65(self, node: int, request: Any) -> Any:  # noqa: ARG002
        kind = DescribeTransactionsResponse.TransactionState

        def one(name: str) -> Any:
            transaction = self.transactions.get(name)
            description = transaction or StubTransaction(-1)
            topics: dict[str, list[int]] = {}
            for topic, partition in sorted(description.partitions):
                topics.setdefault(topic, []).append(partition)
            return kind(
                error_code=0 if transaction else _UNKNOWN_ID,
                transactional_id=name,
                transaction_state=description.state if transaction else "",
                transaction_timeout_ms=description.timeout_ms,
                transaction_start_time_ms=description.started_ms,
                producer_id=description.producer_id,
                producer_epoch=description.epoch,
                topics=[
                    kind.TopicData(topic=topic, partitions=partitions)
                    for topic, partitions in topics.items()
                ],
            )

        states = [one(name) for name in request.transactional_ids]
        return DescribeTransactionsResponse(throttle_time_ms=0, transaction_states=states)

    def _on_66(self, node: int, request: Any) -> Any:
        kind = ListTransactionsResponse.TransactionState
        filters = request.state_filters
        states = [
            kind(
                transactional_id=name,
                producer_id=transaction.producer_id,
                transaction_state=transaction.state,
            )
            for name, transaction in self.transactions.items()
            if self.coordinator(name) == node and (not filters or transaction.state in filters)
        ]
        return ListTransactionsResponse(
            throttle_time_ms=0, error_code=0, unknown_state_filters=[], transaction_states=states
        )


def has_flexible_header(api_key: int, version: int) -> bool:
    """
    Return whether the headers of a request and its response have tagged fields.
    """
    return bool(_REQUESTS[api_key].flexible_version_q(version))


def _next_offset(batch: bytes) -> int:
    (base,) = struct.unpack_from(">q", batch, _BASE)
    (delta,) = struct.unpack_from(">i", batch, _LAST_DELTA)
    return int(base + delta + 1)
