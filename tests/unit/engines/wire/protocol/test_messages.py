"""
The messages of the reading path, compared with kafka-python's encoder and decoder.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol import consumer, metadata
from tests.support.fresh_process import modules_after
from tests.support.protocol_messages import (
    ids,
    int8,
    int16,
    int32,
    int64,
    names,
    nodes,
    read,
    sent,
    sent_by_kafka_python,
    texts,
    tps,
    versions,
)

from pyspark_pykafka.engines.wire.protocol.api_versions import API_VERSIONS, api_versions_request
from pyspark_pykafka.engines.wire.protocol.fetch_request import FETCH, FetchRequest, fetch_request
from pyspark_pykafka.engines.wire.protocol.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    list_offsets_request,
)
from pyspark_pykafka.engines.wire.protocol.metadata import (
    METADATA,
    BrokerMetadata,
    metadata_request,
)
from pyspark_pykafka.engines.wire.protocol.offset_for_leader_epoch import (
    OFFSET_FOR_LEADER_EPOCH,
    OffsetForLeaderPartition,
    offset_for_leader_epoch_request,
)
from pyspark_pykafka.engines.wire.protocol.primitives import Reader, encoding
from pyspark_pykafka.errors import KafkaClientError
from pyspark_pykafka.varint import unsigned_varint

BROKER = metadata.MetadataResponse.MetadataResponseBroker
TOPIC = metadata.MetadataResponse.MetadataResponseTopic
PARTITION = TOPIC.MetadataResponsePartition
LISTED = consumer.ListOffsetsResponse.ListOffsetsTopicResponse
ENDS = consumer.OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
RANGE = metadata.ApiVersionsResponse.ApiVersion


# --- Requests -------------------------------------------------------------------------------------


@given(versions(API_VERSIONS), texts, texts)
def test_api_versions_request_equals_kafka_pythons(
    version: int, name: str, software_version: str
) -> None:
    """
    An ApiVersions request is kafka-python's, byte for byte.
    """
    expected = metadata.ApiVersionsRequest(
        client_software_name=name, client_software_version=software_version, version=version
    )

    assert sent(api_versions_request(version, name, software_version)) == sent_by_kafka_python(
        expected
    )


@given(versions(METADATA), st.none() | st.lists(names, max_size=3), st.booleans())
def test_metadata_request_equals_kafka_pythons(
    version: int, topics: list[str] | None, creates: bool
) -> None:
    """
    A Metadata request is kafka-python's, byte for byte, with topics, without, and for all topics.
    """
    topic = metadata.MetadataRequest.MetadataRequestTopic
    expected = metadata.MetadataRequest(
        topics=None if topics is None else [topic(name=name) for name in topics],
        allow_auto_topic_creation=creates,
        version=version,
    )

    assert sent(
        metadata_request(version, topics, allow_auto_topic_creation=creates)
    ) == sent_by_kafka_python(expected)


requested_offsets = st.dictionaries(
    names, st.lists(st.builds(ListOffsetsPartition, int32, int32, int64), max_size=4), max_size=3
)


@given(versions(LIST_OFFSETS), requested_offsets, int8)
def test_list_offsets_request_equals_kafka_pythons(
    version: int, partitions_by_topic: dict[str, list[ListOffsetsPartition]], isolation: int
) -> None:
    """
    A ListOffsets request is kafka-python's, byte for byte, for any number of partitions.
    """
    topic = consumer.ListOffsetsRequest.ListOffsetsTopic
    topics = [
        topic(
            name=name,
            partitions=[
                topic.ListOffsetsPartition(
                    partition_index=partition.partition_index,
                    current_leader_epoch=partition.current_leader_epoch,
                    timestamp=partition.timestamp,
                )
                for partition in partitions
            ],
        )
        for name, partitions in partitions_by_topic.items()
    ]
    expected = consumer.ListOffsetsRequest(
        replica_id=-1, isolation_level=isolation, topics=topics, version=version
    )

    assert sent(
        list_offsets_request(version, partitions_by_topic, isolation)
    ) == sent_by_kafka_python(expected)


requested_epochs = st.dictionaries(
    names,
    st.lists(st.builds(OffsetForLeaderPartition, int32, int32, int32), max_size=4),
    max_size=3,
)


@given(versions(OFFSET_FOR_LEADER_EPOCH), requested_epochs)
def test_offset_for_leader_epoch_request_equals_kafka_pythons(
    version: int, partitions_by_topic: dict[str, list[OffsetForLeaderPartition]]
) -> None:
    """
    An OffsetForLeaderEpoch request is kafka-python's, byte for byte.
    """
    topic = consumer.OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    topics = [
        topic(
            topic=name,
            partitions=[
                topic.OffsetForLeaderPartition(
                    partition=partition.partition_index,
                    current_leader_epoch=partition.current_leader_epoch,
                    leader_epoch=partition.leader_epoch,
                )
                for partition in partitions
            ],
        )
        for name, partitions in partitions_by_topic.items()
    ]
    expected = consumer.OffsetForLeaderEpochRequest(replica_id=-1, topics=topics, version=version)

    assert sent(
        offset_for_leader_epoch_request(version, partitions_by_topic)
    ) == sent_by_kafka_python(expected)


fetch_fields = st.builds(
    FetchRequest,
    tp=tps,
    topic_id=ids,
    current_leader_epoch=int32,
    fetch_offset=int64,
    max_bytes=int32,
    max_wait_ms=int32,
    isolation_level=int8,
    rack_id=texts,
)


@given(versions(FETCH), fetch_fields)
def test_fetch_request_equals_kafka_pythons(version: int, fields: FetchRequest) -> None:
    """
    A Fetch request is kafka-python's, byte for byte, by topic name and by topic id.
    """
    topic = consumer.FetchRequest.FetchTopic
    partition = topic.FetchPartition(
        partition=fields.tp.partition,
        current_leader_epoch=fields.current_leader_epoch,
        fetch_offset=fields.fetch_offset,
        partition_max_bytes=fields.max_bytes,
    )
    expected = consumer.FetchRequest(
        max_wait_ms=fields.max_wait_ms,
        min_bytes=1,
        max_bytes=fields.max_bytes,
        isolation_level=fields.isolation_level,
        session_id=0,
        session_epoch=-1,
        topics=[topic(topic=fields.tp.topic, topic_id=fields.topic_id, partitions=[partition])],
        forgotten_topics_data=[],
        rack_id=fields.rack_id,
        version=version,
    )

    assert sent(fetch_request(version, fields)) == sent_by_kafka_python(expected)


# --- Responses ------------------------------------------------------------------------------------


@given(versions(API_VERSIONS), st.dictionaries(int16, st.tuples(int16, int16)), int32)
def test_api_versions_response_is_decoded(
    version: int, ranges: dict[int, tuple[int, int]], throttle: int
) -> None:
    """
    Supported versions are decoded as kafka-python encodes them; features are skipped.
    """
    feature = metadata.ApiVersionsResponse.SupportedFeatureKey
    expected = metadata.ApiVersionsResponse(
        error_code=0,
        api_keys=[
            RANGE(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in ranges.items()
        ],
        throttle_time_ms=throttle,
        supported_features=[feature(name="kraft.version", min_version=0, max_version=1)],
        finalized_features_epoch=12,
    )

    response = read(API_VERSIONS, version, expected.encode(version=version))

    assert response.ranges == ranges
    assert response.throttle_time_ms == (throttle if version else 0)


@pytest.mark.parametrize("requested", [0, 3])
def test_unsupported_version_is_decoded(requested: int) -> None:
    """
    A broker that does not support the requested version answers in version 0, which is decoded.
    """
    expected = metadata.ApiVersionsResponse(
        error_code=35, api_keys=[RANGE(api_key=18, min_version=0, max_version=2)]
    )

    response = read(API_VERSIONS, requested, expected.encode(version=0))

    assert response.error_code == 35
    assert response.ranges == {}


partitions = st.builds(
    PARTITION,
    error_code=int16,
    partition_index=int32,
    leader_id=int32,
    leader_epoch=int32,
    replica_nodes=nodes,
    isr_nodes=nodes,
    offline_replicas=nodes,
)
metadata_topics = st.builds(
    TOPIC,
    error_code=int16,
    name=names,
    topic_id=ids,
    is_internal=st.booleans(),
    partitions=st.lists(partitions, max_size=4),
)
brokers = st.builds(BROKER, node_id=int32, host=texts, port=int32, rack=st.none() | texts)
metadata_responses = st.builds(
    metadata.MetadataResponse,
    throttle_time_ms=int32,
    brokers=st.lists(brokers, max_size=3),
    cluster_id=st.none() | texts,
    controller_id=int32,
    topics=st.lists(metadata_topics, max_size=3),
)


@given(versions(METADATA), metadata_responses)
def test_metadata_response_is_decoded(version: int, reference: Any) -> None:
    """
    Brokers, topics and leaders are decoded as by kafka-python, in every version.
    """
    body = bytes(reference.encode(version=version))
    expected = metadata.MetadataResponse.decode(body, version=version, header=False)

    response = read(METADATA, version, body)

    assert response.throttle_time_ms == expected.throttle_time_ms
    assert response.brokers == [BrokerMetadata(b.node_id, b.host, b.port) for b in expected.brokers]
    assert [_topic_fields(topic) for topic in response.topics] == [
        _topic_fields(topic) for topic in expected.topics
    ]


def _topic_fields(topic: Any) -> tuple[Any, ...]:
    topic_id = topic.topic_id if topic.topic_id and topic.topic_id.int else None
    leaders = [(p.partition_index, p.leader_id, p.leader_epoch) for p in topic.partitions]
    return topic.error_code, topic.name, topic_id, leaders, topic.is_internal


def test_topic_without_a_name_is_decoded() -> None:
    """
    From version 12 on, a topic requested by its id may have no name.
    """
    topic = TOPIC(error_code=100, name=None, topic_id=UUID(int=5), partitions=[])
    expected = metadata.MetadataResponse(brokers=[], controller_id=1, topics=[topic])

    (response,) = read(METADATA, 12, expected.encode(version=12)).topics

    assert response == (100, None, UUID(int=5), [], False)


listed_offsets = st.builds(
    LISTED.ListOffsetsPartitionResponse,
    partition_index=int32,
    error_code=int16,
    timestamp=int64,
    offset=int64,
    leader_epoch=int32,
)
topics_listed = st.lists(
    st.builds(LISTED, name=names, partitions=st.lists(listed_offsets, max_size=4)), max_size=3
)


@given(versions(LIST_OFFSETS), topics_listed, int32)
def test_list_offsets_response_is_decoded(version: int, topics: list[Any], throttle: int) -> None:
    """
    The offsets of all partitions are decoded as kafka-python encodes them, in every version.
    """
    expected = consumer.ListOffsetsResponse(throttle_time_ms=throttle, topics=topics)

    response = read(LIST_OFFSETS, version, expected.encode(version=version))

    assert response.throttle_time_ms == throttle
    assert response.topics == [
        (
            topic.name,
            [
                (p.partition_index, p.error_code, p.offset, p.leader_epoch if version >= 4 else -1)
                for p in topic.partitions
            ],
        )
        for topic in topics
    ]


epoch_ends = st.builds(
    ENDS.EpochEndOffset, error_code=int16, partition=int32, leader_epoch=int32, end_offset=int64
)
topics_ended = st.lists(
    st.builds(ENDS, topic=names, partitions=st.lists(epoch_ends, max_size=4)), max_size=3
)


@given(versions(OFFSET_FOR_LEADER_EPOCH), topics_ended, int32)
def test_offset_for_leader_epoch_response_is_decoded(
    version: int, topics: list[Any], throttle: int
) -> None:
    """
    The epoch ends of all partitions are decoded as kafka-python encodes them, in every version.
    """
    expected = consumer.OffsetForLeaderEpochResponse(throttle_time_ms=throttle, topics=topics)

    response = read(OFFSET_FOR_LEADER_EPOCH, version, expected.encode(version=version))

    assert response.throttle_time_ms == throttle
    assert response.topics == [
        (
            topic.topic,
            [(p.partition, p.error_code, p.end_offset, p.leader_epoch) for p in topic.partitions],
        )
        for topic in topics
    ]


@given(st.lists(st.builds(ListOffsetsPartitionResponse, int32, int16, int64), max_size=3))
def test_single_needs_exactly_one_partition(
    partitions: list[ListOffsetsPartitionResponse],
) -> None:
    """
    A response with no partition, or with several, raises a retriable error.
    """
    response = ListOffsetsResponse(0, [("t", partitions)])
    if len(partitions) == 1:
        assert response.single() == partitions[0]
        return

    with pytest.raises(KafkaClientError, match="no valid ListOffsetsResponse for one partition"):
        response.single()


# --- Values ---------------------------------------------------------------------------------------


@given(st.integers(0, 2**32 - 1))
def test_varint_round_trip(value: int) -> None:
    """
    Every possible length is decoded as it was encoded.
    """
    assert Reader(unsigned_varint(value), 1, 0).varint() == value


def test_varint_without_an_end_is_refused() -> None:
    """
    A varint of megabytes is refused after five bytes; summing it would take minutes.
    """
    with pytest.raises(ValueError, match="the varint before byte 5 does not end"):
        Reader(b"\xff" * 1_000_000, 1, 0).varint()


@pytest.mark.parametrize("flexible", [False, True])
@pytest.mark.parametrize("text", [None, "", "topic", "é" * 200])
def test_string_round_trip(text: str | None, flexible: bool) -> None:
    """
    Strings are decoded as they were encoded; null and empty strings differ.
    """
    written = encoding(flexible=flexible).string(text)

    assert Reader(written, int(flexible), 1).string() == text


ENCODING = """
import pyspark_pykafka.engines.selection
import pyspark_pykafka.engines.wire.consumer.range_reader
from pyspark_pykafka.offsets import TopicPartition
from pyspark_pykafka.engines.wire.protocol.fetch_request import FetchRequest, fetch_request
from pyspark_pykafka.engines.wire.protocol.list_offsets import (
    ListOffsetsPartition, list_offsets_request
)
from pyspark_pykafka.engines.wire.protocol.metadata import metadata_request
from pyspark_pykafka.engines.wire.protocol.api_versions import api_versions_request

tp = TopicPartition("t", 0)
for request in (
    api_versions_request(3, "s", "1"),
    metadata_request(12, ["t"], allow_auto_topic_creation=False),
    list_offsets_request(7, {"t": [ListOffsetsPartition(0, 1, -1)]}, 0),
    fetch_request(12, FetchRequest(tp, None, 1, 0, 100, 100, 0, "")),
):
    request.encode(1, "c")
"""


def test_reading_path_leaves_kafka_python_out() -> None:
    """
    A fresh process encodes the requests of a first read without importing a Kafka client.
    """
    assert not {"kafka", "confluent_kafka", "ssl", "crc32c", "pandas"} & modules_after(ENCODING)
