"""
Truncated, damaged and newer responses: a named error, or unknown fields that are skipped.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol import admin, consumer, metadata, producer
from tests.support.kafka_schemas import ConsumerGroupDescribeResponse
from tests.support.protocol_messages import read, versions

from pyspark_pykafka.engines.wire.protocol.api_versions import API_VERSIONS
from pyspark_pykafka.engines.wire.protocol.describe_configs import DESCRIBE_CONFIGS
from pyspark_pykafka.engines.wire.protocol.find_coordinator import FIND_COORDINATOR
from pyspark_pykafka.engines.wire.protocol.groups import (
    CONSUMER_GROUP_DESCRIBE,
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    LIST_GROUPS,
)
from pyspark_pykafka.engines.wire.protocol.list_offsets import LIST_OFFSETS
from pyspark_pykafka.engines.wire.protocol.metadata import METADATA
from pyspark_pykafka.engines.wire.protocol.offset_for_leader_epoch import OFFSET_FOR_LEADER_EPOCH
from pyspark_pykafka.engines.wire.protocol.produce import PRODUCE
from pyspark_pykafka.engines.wire.protocol.transaction_states import (
    DESCRIBE_TRANSACTIONS,
    LIST_TRANSACTIONS,
)
from pyspark_pykafka.engines.wire.protocol.transactions import (
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
)
from pyspark_pykafka.errors import KafkaClientError

if TYPE_CHECKING:
    from pyspark_pykafka.engines.wire.protocol.request import ApiSpec

TOPIC = metadata.MetadataResponse.MetadataResponseTopic
PARTITION = TOPIC.MetadataResponsePartition
OFFSETS = consumer.ListOffsetsResponse.ListOffsetsTopicResponse
ENDS = consumer.OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
ADDED = producer.AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
ADDED_PARTITION = ADDED.AddPartitionsToTxnPartitionResult
CONFIGS = admin.DescribeConfigsResponse.DescribeConfigsResult
SETTING = CONFIGS.DescribeConfigsResourceResult
DESCRIBED = admin.DescribeTransactionsResponse.TransactionState
CLASSIC_GROUP = admin.DescribeGroupsResponse.DescribedGroup
GROUP = ConsumerGroupDescribeResponse.DescribedGroup
ASSIGNMENT = GROUP.Member.Assignment
WRITTEN = producer.ProduceResponse.TopicProduceResponse
WRITTEN_PARTITION = WRITTEN.PartitionProduceResponse

METADATA_PARTITIONS = [
    PARTITION(
        error_code=0,
        partition_index=number,
        leader_id=1,
        leader_epoch=5,
        replica_nodes=[1, 2],
        isr_nodes=[1],
        offline_replicas=[],
    )
    for number in (0, 1)
]
PARTITIONS_WRITTEN = [
    WRITTEN_PARTITION(
        index=number,
        error_code=87,
        base_offset=5,
        record_errors=[
            WRITTEN_PARTITION.BatchIndexAndErrorMessage(
                batch_index=1, batch_index_error_message=None
            )
        ],
        error_message="bad",
    )
    for number in (0, 1)
]
ASSIGNED = ASSIGNMENT(
    topic_partitions=[
        ASSIGNMENT.TopicPartitions(topic_id=UUID(int=7), topic_name="t", partitions=[0, 1])
    ]
)
# Responses that kafka-python encodes in each version.
RESPONSES: dict[ApiSpec[Any], Any] = {
    METADATA: metadata.MetadataResponse(
        brokers=[
            metadata.MetadataResponse.MetadataResponseBroker(
                node_id=1, host="localhost", port=9092, rack=None
            )
        ],
        cluster_id="c",
        controller_id=1,
        topics=[TOPIC(error_code=0, name="t", partitions=METADATA_PARTITIONS)],
    ),
    LIST_OFFSETS: consumer.ListOffsetsResponse(
        topics=[
            OFFSETS(
                name="t",
                partitions=[OFFSETS.ListOffsetsPartitionResponse(partition_index=0, error_code=0)],
            )
        ]
    ),
    OFFSET_FOR_LEADER_EPOCH: consumer.OffsetForLeaderEpochResponse(
        topics=[
            ENDS(
                topic="t",
                partitions=[ENDS.EpochEndOffset(partition=0, leader_epoch=5, end_offset=300)],
            )
        ]
    ),
    API_VERSIONS: metadata.ApiVersionsResponse(
        error_code=0,
        api_keys=[
            metadata.ApiVersionsResponse.ApiVersion(api_key=1, min_version=4, max_version=17)
        ],
    ),
    INIT_PRODUCER_ID: producer.InitProducerIdResponse(producer_id=1, producer_epoch=2),
    ADD_PARTITIONS_TO_TXN: producer.AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            ADDED(
                name="t",
                results_by_partition=[ADDED_PARTITION(partition_index=0, partition_error_code=0)],
            )
        ]
    ),
    END_TXN: producer.EndTxnResponse(error_code=0),
    FIND_COORDINATOR: metadata.FindCoordinatorResponse(
        error_code=0,
        node_id=1,
        host="h",
        port=9,
        coordinators=[
            metadata.FindCoordinatorResponse.Coordinator(
                key="k", node_id=1, host="h", port=9, error_code=0
            )
        ],
    ),
    DESCRIBE_TRANSACTIONS: admin.DescribeTransactionsResponse(
        transaction_states=[
            DESCRIBED(
                transactional_id="x",
                transaction_state="Ongoing",
                topics=[DESCRIBED.TopicData(topic="t", partitions=[0, 1])],
            )
        ]
    ),
    DESCRIBE_CONFIGS: admin.DescribeConfigsResponse(
        results=[
            CONFIGS(
                error_code=0,
                resource_type=2,
                resource_name="t",
                configs=[
                    SETTING(
                        name="cleanup.policy",
                        value="compact",
                        synonyms=[SETTING.DescribeConfigsSynonym(name="s", value="v", source=5)],
                    )
                ],
            )
        ]
    ),
    LIST_TRANSACTIONS: admin.ListTransactionsResponse(
        unknown_state_filters=["u"],
        transaction_states=[
            admin.ListTransactionsResponse.TransactionState(
                transactional_id="x", producer_id=1, transaction_state="Dead"
            )
        ],
    ),
    DESCRIBE_GROUPS: admin.DescribeGroupsResponse(
        groups=[
            CLASSIC_GROUP(
                group_id="g",
                group_state="Stable",
                members=[
                    CLASSIC_GROUP.DescribedGroupMember(
                        member_id="m",
                        client_id="c",
                        client_host="/127.0.0.1",
                        member_metadata=b"ab",
                        member_assignment=b"c",
                    )
                ],
            )
        ]
    ),
    CONSUMER_GROUP_DESCRIBE: ConsumerGroupDescribeResponse(
        groups=[
            GROUP(
                group_id="g",
                group_state="Stable",
                members=[
                    GROUP.Member(
                        member_id="m",
                        subscribed_topic_names=["t"],
                        assignment=ASSIGNED,
                        target_assignment=ASSIGNED,
                    )
                ],
            )
        ]
    ),
    LIST_GROUPS: admin.ListGroupsResponse(
        groups=[
            admin.ListGroupsResponse.ListedGroup(
                group_id="g", protocol_type="consumer", group_state="Stable", group_type="classic"
            )
        ]
    ),
    DELETE_GROUPS: admin.DeleteGroupsResponse(
        results=[admin.DeleteGroupsResponse.DeletableGroupResult(group_id="g", error_code=0)]
    ),
    PRODUCE: producer.ProduceResponse(
        responses=[WRITTEN(name="t", partition_responses=PARTITIONS_WRITTEN)]
    ),
}


class Case(NamedTuple):
    """
    A response in one version.
    """

    api: ApiSpec[Any]
    version: int

    def __str__(self) -> str:
        return f"{self.api.name}-{self.version}"

    @property
    def body(self) -> bytes:
        """
        The bytes that a broker sends.
        """
        return bytes(RESPONSES[self.api].encode(version=self.version))


def known_versions(api: ApiSpec[Any]) -> list[Case]:
    """
    Return a response in each version that we support.
    """
    oldest, newest = api.valid_versions
    return [Case(api, version) for version in range(oldest, newest + 1)]


CASES = list(chain.from_iterable(map(known_versions, RESPONSES)))
# With all bits set, lengths are null or far too long.
noise = st.binary(max_size=200) | st.integers(0, 60).map(lambda size: b"\xff" * size)
each_case = pytest.mark.parametrize("case", CASES, ids=str)
each_api = pytest.mark.parametrize("api", RESPONSES, ids=lambda api: api.name)


@each_case
def test_truncated_response_is_refused(case: Case) -> None:
    """
    A response truncated anywhere raises a retriable KafkaClientError.
    """
    body = case.body
    for size in range(len(body)):
        with pytest.raises(KafkaClientError, match="a broker sent no valid .*Response") as caught:
            read(case.api, case.version, body[:size])
        assert caught.value.retriable


@each_case
def test_damaged_byte_gives_an_error_or_a_response(case: Case) -> None:
    """
    A response with one changed byte raises KafkaClientError or is decoded.
    """
    for position in range(len(case.body)):
        for value in (0x00, 0x01, 0x7F, 0x80, 0xFF):
            body = bytearray(case.body)
            body[position] = value
            try:
                read(case.api, case.version, bytes(body))
            except KafkaClientError as error:
                assert error.retriable  # noqa: PT017 (a response is valid, too)


@each_api
@given(st.data())
def test_noise_gives_an_error_or_a_response(api: ApiSpec[Any], data: st.DataObject) -> None:
    """
    Arbitrary bytes raise KafkaClientError or are decoded.
    """
    version, body = data.draw(versions(api)), data.draw(noise)
    try:
        read(api, version, body)
    except KafkaClientError as error:
        assert error.retriable  # noqa: PT017 (a response is valid, too)


@each_api
def test_unknown_tags_are_skipped(api: ApiSpec[Any]) -> None:
    """
    Tagged fields of newer brokers are skipped.
    """
    version = api.valid_versions[1]
    body = Case(api, version).body
    # Two unknown tagged fields instead of none, at the end of the response.
    tagged = body[:-1] + b"\x02" + b"\x90\x4e\x03abc" + b"\x91\x4e\x00"

    assert read(api, version, tagged) == read(api, version, body)


def test_unknown_tags_of_inner_structures_are_skipped() -> None:
    """
    Tagged fields after a rejected record and after a partition are skipped.
    """
    body = Case(PRODUCE, 9).body
    rejected, message = b"\x00\x00\x00\x01\x00", b"\x04bad"
    before = rejected + b"\x00" + message + b"\x00"
    assert body.count(before) == len(PARTITIONS_WRITTEN)
    tagged = body.replace(before, rejected + b"\x01\x05\x01x" + message + b"\x01\x05\x02xy")

    assert read(PRODUCE, 9, tagged) == read(PRODUCE, 9, body)


def test_unknown_tags_of_a_partition_are_skipped() -> None:
    """
    Tagged fields between two partitions are skipped, although the fast path expects none.
    """
    tail = b"\x00\x00\x00\x01" + b"\x01"
    body = Case(METADATA, 12).body
    first = body.index(tail + b"\x00") + len(tail)
    tagged = body[:first] + b"\x01\x05\x02xy" + body[first + 1 :]

    assert read(METADATA, 12, tagged) == read(METADATA, 12, body)
