"""
The messages about consumer groups, compared with kafka-python's encoder and decoder.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol import admin
from tests.support.kafka_schemas import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from tests.support.protocol_messages import (
    decoded_by_both,
    int8,
    int16,
    int32,
    names,
    read,
    sent,
    sent_by_kafka_python,
    texts,
    versions,
)

from pyspark_pykafka.engines.wire.protocol.groups import (
    CONSUMER_GROUP_DESCRIBE,
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    LIST_GROUPS,
    consumer_group_describe_request,
    delete_groups_request,
    describe_groups_request,
    list_groups_request,
)
from pyspark_pykafka.errors import KafkaClientError

messages = st.none() | texts
blobs = st.binary(max_size=40) | st.just(bytes(130))
operations = st.sets(st.integers(2, 16))


# --- Requests -------------------------------------------------------------------------------------


@given(versions(DESCRIBE_GROUPS), names, st.booleans())
def test_describe_groups_request_equals_kafka_pythons(
    version: int, group: str, include: bool
) -> None:
    """
    A DescribeGroups request is kafka-python's, byte for byte.
    """
    reference = admin.DescribeGroupsRequest(
        groups=[group], include_authorized_operations=include, version=version
    )

    actual = describe_groups_request(version, group, include_operations=include)

    assert sent(actual) == sent_by_kafka_python(reference)


@given(versions(CONSUMER_GROUP_DESCRIBE), names, st.booleans())
def test_consumer_group_describe_request_has_kafkas_schema(
    version: int, group: str, include: bool
) -> None:
    """
    A ConsumerGroupDescribe request is encoded as Kafka's schema demands.
    """
    reference = ConsumerGroupDescribeRequest(
        group_ids=[group], include_authorized_operations=include, version=version
    )

    actual = consumer_group_describe_request(version, group, include_operations=include)

    assert sent(actual) == sent_by_kafka_python(reference)


@given(versions(LIST_GROUPS))
def test_list_groups_request_equals_kafka_pythons(version: int) -> None:
    """
    A ListGroups request is kafka-python's, byte for byte, without filters.
    """
    reference = admin.ListGroupsRequest(states_filter=[], types_filter=[], version=version)

    assert sent(list_groups_request(version)) == sent_by_kafka_python(reference)


@given(versions(DELETE_GROUPS), names)
def test_delete_groups_request_equals_kafka_pythons(version: int, group: str) -> None:
    """
    A DeleteGroups request is kafka-python's, byte for byte.
    """
    reference = admin.DeleteGroupsRequest(groups_names=[group], version=version)

    assert sent(delete_groups_request(version, group)) == sent_by_kafka_python(reference)


# --- Responses ------------------------------------------------------------------------------------


CLASSIC_GROUP = admin.DescribeGroupsResponse.DescribedGroup
CLASSIC_MEMBER = CLASSIC_GROUP.DescribedGroupMember
classic_groups = st.builds(
    CLASSIC_GROUP,
    error_code=int16,
    group_id=names,
    group_state=texts,
    protocol_type=texts,
    protocol_data=texts,
    members=st.lists(
        st.builds(
            CLASSIC_MEMBER,
            member_id=texts,
            group_instance_id=messages,
            client_id=texts,
            client_host=texts,
            member_metadata=blobs,
            member_assignment=blobs,
        ),
        max_size=3,
    ),
    authorized_operations=operations,
)


@given(versions(DESCRIBE_GROUPS), int32, classic_groups)
def test_describe_groups_response_is_decoded(version: int, throttle: int, described: Any) -> None:
    """
    State, members and operations are decoded as by kafka-python; assignments are skipped.
    """
    reference = admin.DescribeGroupsResponse(throttle_time_ms=throttle, groups=[described])

    response, expected = decoded_by_both(DESCRIBE_GROUPS, version, reference)

    (group,) = expected.groups
    assert response.group[:3] == (
        group.error_code,
        group.group_state,
        [(m.group_instance_id, m.client_id, m.client_host) for m in group.members],
    )
    bits = response.group.authorized_operations
    assert {bit for bit in range(32) if bits >> bit & 1} == group.authorized_operations


GROUP = ConsumerGroupDescribeResponse.DescribedGroup
MEMBER = GROUP.Member
ASSIGNMENT = MEMBER.Assignment
assignments = st.builds(
    ASSIGNMENT,
    topic_partitions=st.lists(
        st.builds(
            ASSIGNMENT.TopicPartitions,
            topic_id=st.uuids(),
            topic_name=names,
            partitions=st.lists(int32, max_size=3),
        ),
        max_size=3,
    ),
)
groups = st.builds(
    GROUP,
    error_code=int16,
    error_message=messages,
    group_id=names,
    group_state=texts,
    group_epoch=int32,
    assignment_epoch=int32,
    assignor_name=texts,
    members=st.lists(
        st.builds(
            MEMBER,
            member_id=texts,
            instance_id=messages,
            rack_id=messages,
            member_epoch=int32,
            client_id=texts,
            client_host=texts,
            subscribed_topic_names=st.lists(names, max_size=2),
            subscribed_topic_regex=messages,
            assignment=assignments,
            target_assignment=assignments,
            member_type=int8,
        ),
        max_size=3,
    ),
    authorized_operations=int32,
)


@given(versions(CONSUMER_GROUP_DESCRIBE), int32, groups)
def test_consumer_group_describe_response_is_decoded(
    version: int, throttle: int, described: Any
) -> None:
    """
    State, members and operations are decoded by Kafka's schema; assignments are skipped.
    """
    reference = ConsumerGroupDescribeResponse(throttle_time_ms=throttle, groups=[described])

    response, expected = decoded_by_both(CONSUMER_GROUP_DESCRIBE, version, reference)

    (group,) = expected.groups
    assert response.group == (
        group.error_code,
        group.group_state,
        [(m.instance_id, m.client_id, m.client_host) for m in group.members],
        group.authorized_operations,
    )


@pytest.mark.parametrize("count", [0, 2])
def test_another_number_of_groups_is_refused(count: int) -> None:
    """
    A response to a request for one group has one group; any other raises a retriable error.
    """
    kind = admin.DescribeGroupsResponse
    body = bytes(kind(groups=count * [CLASSIC_GROUP(group_id="g")]).encode(version=5))

    with pytest.raises(KafkaClientError, match="no valid DescribeGroupsResponse") as caught:
        read(DESCRIBE_GROUPS, 5, body)
    assert caught.value.retriable


LISTED = admin.ListGroupsResponse.ListedGroup
listed_groups = st.builds(
    LISTED, group_id=names, protocol_type=texts, group_state=texts, group_type=texts
)


@given(versions(LIST_GROUPS), int32, int16, st.lists(listed_groups, max_size=3))
def test_list_groups_response_is_decoded(
    version: int, throttle: int, error: int, listed: list[Any]
) -> None:
    """
    The groups and their protocols are decoded as by kafka-python; states and types are skipped.
    """
    reference = admin.ListGroupsResponse(throttle_time_ms=throttle, error_code=error, groups=listed)

    response, expected = decoded_by_both(LIST_GROUPS, version, reference)

    assert response.error_code == expected.error_code
    assert response.groups == [(group.group_id, group.protocol_type) for group in expected.groups]


@given(versions(DELETE_GROUPS), int32, names, int16)
def test_delete_groups_response_is_decoded(
    version: int, throttle: int, group: str, error: int
) -> None:
    """
    The error code is decoded as by kafka-python, in every version.
    """
    result = admin.DeleteGroupsResponse.DeletableGroupResult(group_id=group, error_code=error)
    reference = admin.DeleteGroupsResponse(throttle_time_ms=throttle, results=[result])

    response, _ = decoded_by_both(DELETE_GROUPS, version, reference)

    assert response.error_code == error


def test_the_version_without_operations_of_missing_groups_is_not_used() -> None:
    """
    DescribeGroups 6 returns no operations for a group that does not exist, although they decide
    whether a query may create the group.
    """
    assert DESCRIBE_GROUPS.valid_versions == (4, 5)
