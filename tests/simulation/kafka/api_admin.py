"""
CreateTopics, DeleteTopics, DeleteRecords and DescribeConfigs.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kafka.protocol.admin import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
)
from tests.simulation.kafka.call import Gathered, find_replica
from tests.simulation.kafka.codes import Code, RequestError
from tests.simulation.kafka.image import Partition

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.kafka.call import Call

_ZERO = UUID(int=0)
_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_Result = CreateTopicsResponse.CreatableTopicResult
_Topic = DeleteRecordsResponse.DeleteRecordsTopicResult
_TOPIC = 2
_HIGH_WATERMARK = -1


def create_topics(call: Call) -> None:
    results = [_create(call, topic) for topic in call.request.topics]
    response = CreateTopicsResponse(throttle_time_ms=0, topics=results)
    world = call.node.world
    # The controller answers before all brokers know the topic.
    world.later(world.settings.metadata, partial(call.respond, response))


def _create(call: Call, requested: Any) -> Any:
    world = call.node.world
    settings, image = world.settings, world.controller.image
    config = {setting.name: setting.value for setting in requested.configs}
    partitions = max(requested.num_partitions, 1) if requested.num_partitions != 0 else 0
    replication = requested.replication_factor
    if replication == -1:
        replication = min(settings.replication_factor, len(world.nodes))
    code, topic_id = _refusal(call, requested.name, partitions, replication), _ZERO
    if not code and not call.request.validate_only:
        min_isr = config.get("min.insync.replicas")
        topic = world.controller.create_topic(
            requested.name,
            partitions,
            replication,
            compacted="compact" in (config.get("cleanup.policy") or ""),
            min_isr=int(min_isr) if min_isr else settings.min_insync_replicas,
            config=config,
        )
        topic_id = topic.topic_id
    if code == Code.TOPIC_ALREADY_EXISTS:
        topic_id = image.topics[requested.name].topic_id
    return _Result(
        name=requested.name,
        topic_id=topic_id,
        error_code=code,
        error_message=code.name if code else None,
        topic_config_error_code=0,
        num_partitions=partitions,
        replication_factor=replication,
        configs=[],
    )


def _refusal(call: Call, name: str, partitions: int, replication: int) -> Code:
    controller = call.node.world.controller
    if not call.node.reachable:
        return Code.REQUEST_TIMED_OUT
    if not _NAME.fullmatch(name):
        return Code.INVALID_TOPIC
    if name in controller.image.topics:
        return Code.TOPIC_ALREADY_EXISTS
    if partitions < 1:
        return Code.INVALID_PARTITIONS
    if not 1 <= replication <= len(controller.image.brokers):
        return Code.INVALID_REPLICATION_FACTOR
    return Code.NONE


def delete_topics(call: Call) -> None:
    requested = [(topic.name, topic.topic_id) for topic in call.request.topics or ()]
    requested += [(name, _ZERO) for name in call.request.topic_names or ()]
    results = [_delete(call, name, topic_id) for name, topic_id in requested]
    world = call.node.world
    response = DeleteTopicsResponse(throttle_time_ms=0, responses=results)
    world.later(world.settings.metadata, partial(call.respond, response))


def _delete(call: Call, name: str | None, topic_id: UUID) -> Any:
    controller = call.node.world.controller
    if name is None:
        topic = controller.image.topic_of(topic_id)
    else:
        topic = controller.image.topics.get(name)
    code = Code.UNKNOWN_TOPIC_ID if name is None else Code.UNKNOWN_TOPIC_OR_PARTITION
    if topic is not None:
        controller.delete_topic(topic.name)
        code = Code.NONE
    return DeleteTopicsResponse.DeletableTopicResult(
        name=topic.name if topic else name,
        topic_id=topic.topic_id if topic else topic_id,
        error_code=code,
        error_message=None,
    )


def delete_records(call: Call) -> None:
    parts = [
        Partition(topic.name, part.partition_index)
        for topic in call.request.topics
        for part in topic.partitions
    ]

    def done(results: dict[Partition, tuple[Code, int]]) -> None:
        topics = [
            _Topic(
                name=topic.name,
                partitions=[
                    _deleted(
                        part.partition_index,
                        results[Partition(topic.name, part.partition_index)],
                    )
                    for part in topic.partitions
                ],
            )
            for topic in call.request.topics
        ]
        call.respond(DeleteRecordsResponse(throttle_time_ms=0, topics=topics))

    gathered = Gathered(len(parts), done)
    for topic in call.request.topics:
        for part in topic.partitions:
            partition = Partition(topic.name, part.partition_index)
            _delete_before(call, partition, part.offset, partial(gathered.put, partition))


def _delete_before(
    call: Call, partition: Partition, offset: int, put: Callable[[tuple[Code, int]], None]
) -> None:
    try:
        replica = find_replica(call.node, partition)
    except RequestError as error:
        put((error.code, -1))
        return
    target = replica.high_watermark if offset == _HIGH_WATERMARK else offset
    if not 0 <= target <= replica.high_watermark:
        put((Code.OFFSET_OUT_OF_RANGE, -1))
        return
    replica.delete_before(target)
    put((Code.NONE, replica.log.start))


def _deleted(index: int, result: tuple[Code, int]) -> Any:
    return _Topic.DeleteRecordsPartitionResult(
        partition_index=index, low_watermark=result[1], error_code=result[0]
    )


def describe_configs(call: Call) -> None:
    results = [_configs(call, resource) for resource in call.request.resources]
    call.respond(DescribeConfigsResponse(throttle_time_ms=0, results=results))


def _configs(call: Call, resource: Any) -> Any:
    kind = DescribeConfigsResponse.DescribeConfigsResult
    code, values = Code.NONE, {}
    if resource.resource_type == _TOPIC:
        topic = call.node.known.topics.get(resource.resource_name)
        if topic is None:
            code = Code.UNKNOWN_TOPIC_OR_PARTITION
        else:
            policy = "compact" if topic.compacted else "delete"
            values = {
                "cleanup.policy": policy,
                "min.insync.replicas": str(topic.min_isr),
                **topic.config,
            }
    requested = resource.configuration_keys
    configs = [
        kind.DescribeConfigsResourceResult(
            name=name,
            value=value,
            read_only=False,
            config_source=1,
            is_default=False,
            is_sensitive=False,
            synonyms=[],
            config_type=2,
            documentation=None,
        )
        for name, value in values.items()
        if requested is None or name in requested
    ]
    return kind(
        error_code=code,
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=configs,
    )


APIS = [
    (CreateTopicsRequest, (2, 7), create_topics),
    (DeleteTopicsRequest, (1, 6), delete_topics),
    (DeleteRecordsRequest, (0, 2), delete_records),
    (DescribeConfigsRequest, (1, 4), describe_configs),
]
