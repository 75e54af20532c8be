"""
Metadata, DescribeTopicPartitions, DescribeCluster and FindCoordinator, as one broker knows them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from kafka.protocol.admin import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from kafka.protocol.metadata import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)
from tests.simulation.kafka.codes import Code
from tests.simulation.kafka.coordinator import shard_for
from tests.simulation.kafka.image import GROUPS, NO_LEADER, TRANSACTIONS

if TYPE_CHECKING:
    from tests.simulation.kafka.call import Call
    from tests.simulation.kafka.image import PartitionState, TopicState
    from tests.simulation.kafka.node import Node

CLUSTER_ID = "c2ltdWxhdGVkLWNsdXN0ZXI"
_ZERO = UUID(int=0)
_Topic = MetadataResponse.MetadataResponseTopic
_Described = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
_KEY_TYPES = {0: GROUPS, 1: TRANSACTIONS}


def metadata(call: Call) -> None:
    node, requested = call.node, call.request.topics
    # In version 0 an empty list requests all topics.
    if requested is None or (call.version == 0 and not requested):
        topics = [_topic(node, topic) for topic in node.named_topics.values()]
    else:
        topics = [_requested_topic(call, topic.name, topic.topic_id) for topic in requested]
    controller = min(node.known.brokers, default=NO_LEADER)
    call.respond(
        MetadataResponse(
            throttle_time_ms=0,
            brokers=_brokers(node, MetadataResponse.MetadataResponseBroker),
            cluster_id=CLUSTER_ID,
            controller_id=controller,
            topics=topics,
        )
    )


def _brokers(node: Node, kind: Any, id_field: str = "node_id") -> list[Any]:
    brokers = []
    for node_id in sorted(node.known.brokers):
        host, port = node.world.settings.address(node_id)
        brokers.append(kind(**{id_field: node_id}, host=host, port=port, rack=None))
    return brokers


def _requested_topic(call: Call, name: str | None, topic_id: UUID | None) -> Any:
    known = call.node.known
    if name is None and topic_id not in {None, _ZERO}:
        topic = known.topic_of(topic_id)
        topic = None if topic is None else call.node.named_topics.get(topic.name)
        missing = Code.UNKNOWN_TOPIC_ID
    else:
        topic, missing = call.node.named_topics.get(name or ""), Code.UNKNOWN_TOPIC_OR_PARTITION
    if topic is not None:
        return _topic(call.node, topic)
    return _Topic(
        error_code=missing, name=name, topic_id=topic_id or _ZERO, is_internal=False, partitions=[]
    )


def _topic(node: Node, topic: TopicState) -> Any:
    return _Topic(
        error_code=Code.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=False,
        partitions=[
            _Topic.MetadataResponsePartition(**_partition(node, number, state))
            for number, state in enumerate(topic.partitions)
        ],
    )


def _partition(node: Node, number: int, state: PartitionState) -> dict[str, Any]:
    return {
        "error_code": Code.NONE if state.leader != NO_LEADER else Code.LEADER_NOT_AVAILABLE,
        "partition_index": number,
        "leader_id": state.leader,
        "leader_epoch": state.epoch,
        "replica_nodes": list(state.replicas),
        "isr_nodes": list(state.isr),
        "offline_replicas": [n for n in state.replicas if n not in node.known.brokers],
    }


def describe_topic_partitions(call: Call) -> None:
    topics_by_name = call.node.named_topics
    names = [topic.name for topic in call.request.topics] or list(topics_by_name)
    call.respond(
        DescribeTopicPartitionsResponse(
            throttle_time_ms=0,
            topics=[
                _described(call.node, name, topics_by_name.get(name)) for name in sorted(names)
            ],
            next_cursor=None,
        )
    )


def _described(node: Node, name: str, topic: TopicState | None) -> Any:
    kind = _Described.DescribeTopicPartitionsResponsePartition
    return _Described(
        error_code=Code.NONE if topic else Code.UNKNOWN_TOPIC_OR_PARTITION,
        name=name,
        topic_id=topic.topic_id if topic else _ZERO,
        is_internal=False,
        partitions=[
            kind(**_partition(node, number, state), eligible_leader_replicas=[], last_known_elr=[])
            for number, state in enumerate(topic.partitions if topic else ())
        ],
    )


def describe_cluster(call: Call) -> None:
    call.respond(
        DescribeClusterResponse(
            throttle_time_ms=0,
            error_code=0,
            endpoint_type=call.request.endpoint_type,
            cluster_id=CLUSTER_ID,
            controller_id=min(call.node.known.brokers, default=NO_LEADER),
            brokers=_brokers(call.node, DescribeClusterResponse.DescribeClusterBroker, "broker_id"),
        )
    )


def find_coordinator(call: Call) -> None:
    kind = _KEY_TYPES[call.request.key_type or 0]
    if call.version >= 4:
        coordinators = [
            FindCoordinatorResponse.Coordinator(
                key=key, error_message=None, **_coordinator(call.node, kind, key)
            )
            for key in call.request.coordinator_keys
        ]
        call.respond(FindCoordinatorResponse(throttle_time_ms=0, coordinators=coordinators))
    else:
        fields = _coordinator(call.node, kind, call.request.key)
        call.respond(FindCoordinatorResponse(throttle_time_ms=0, error_message=None, **fields))


def _coordinator(node: Node, kind: str, key: str) -> dict[str, Any]:
    leader = node.known.shards[shard_for(node, kind, key)].node
    if leader == NO_LEADER or leader not in node.known.brokers:
        return {"error_code": Code.COORDINATOR_NOT_AVAILABLE, "node_id": -1, "host": "", "port": -1}
    host, port = node.world.settings.address(leader)
    return {"error_code": Code.NONE, "node_id": leader, "host": host, "port": port}


APIS = [
    (MetadataRequest, (0, 13), metadata),
    (DescribeTopicPartitionsRequest, (0, 0), describe_topic_partitions),
    (DescribeClusterRequest, (0, 1), describe_cluster),
    (FindCoordinatorRequest, (0, 5), find_coordinator),
]
