"""
The messages of the writing path, compared with kafka-python's encoder and decoder.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol import admin, metadata, producer
from tests.support.fresh_process import modules_after
from tests.support.protocol_messages import (
    decoded_by_both,
    int8,
    int16,
    int32,
    int64,
    names,
    sent,
    sent_by_kafka_python,
    texts,
    tps,
    versions,
)

from pyspark_pykafka.engines.wire.protocol.describe_configs import (
    DESCRIBE_CONFIGS,
    describe_configs_request,
)
from pyspark_pykafka.engines.wire.protocol.find_coordinator import (
    FIND_COORDINATOR,
    GROUP,
    TRANSACTION,
    find_coordinator_request,
)
from pyspark_pykafka.engines.wire.protocol.produce import PRODUCE, RejectedRecord
from pyspark_pykafka.engines.wire.protocol.transaction_states import (
    DESCRIBE_TRANSACTIONS,
    LIST_TRANSACTIONS,
    describe_transactions_request,
    list_transactions_request,
)
from pyspark_pykafka.engines.wire.protocol.transactions import (
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    add_partitions_to_txn_request,
    end_txn_request,
    init_producer_id_request,
)
from pyspark_pykafka.engines.wire.records.record_batch import ProducerIdAndEpoch
from pyspark_pykafka.offsets import TopicPartition

# With more than 127 elements, the length of an array has two bytes.
some_names = st.lists(names, min_size=1, max_size=3) | st.just(
    [f"n{number}" for number in range(130)]
)
identities = st.builds(ProducerIdAndEpoch, int64, int16)
messages = st.none() | texts


# --- Requests -------------------------------------------------------------------------------------


@given(versions(INIT_PRODUCER_ID), st.none() | names, int32)
def test_init_producer_id_request_equals_kafka_pythons(
    version: int, name: str | None, timeout: int
) -> None:
    """
    An InitProducerId request is kafka-python's, byte for byte, with and without a transaction.
    """
    reference = producer.InitProducerIdRequest(
        transactional_id=name,
        transaction_timeout_ms=timeout,
        producer_id=-1,
        producer_epoch=-1,
        version=version,
    )

    assert sent(init_producer_id_request(version, name, timeout)) == sent_by_kafka_python(reference)


@given(versions(ADD_PARTITIONS_TO_TXN), names, identities, st.lists(tps, max_size=4, unique=True))
def test_add_partitions_to_txn_request_equals_kafka_pythons(
    version: int, name: str, identity: ProducerIdAndEpoch, added: list[TopicPartition]
) -> None:
    """
    An AddPartitionsToTxn request is kafka-python's, byte for byte.
    """
    kind = producer.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    topics = {
        tp.topic: [item.partition for item in added if item.topic == tp.topic] for tp in added
    }
    reference = producer.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.epoch,
        v3_and_below_topics=[
            kind(name=topic, partitions=numbers) for topic, numbers in topics.items()
        ],
        version=version,
    )

    actual = add_partitions_to_txn_request(version, name, identity, added)

    assert sent(actual) == sent_by_kafka_python(reference)


@given(versions(END_TXN), names, identities, st.booleans())
def test_end_txn_request_equals_kafka_pythons(
    version: int, name: str, identity: ProducerIdAndEpoch, commit: bool
) -> None:
    """
    An EndTxn request is kafka-python's, byte for byte.
    """
    reference = producer.EndTxnRequest(
        transactional_id=name,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        committed=commit,
        version=version,
    )

    actual = end_txn_request(version, name, identity, commit=commit)

    assert sent(actual) == sent_by_kafka_python(reference)


def test_versions_with_another_meaning_are_not_supported() -> None:
    """
    EndTxn 5 bumps the epoch, AddPartitionsToTxn 4 is for brokers, and FindCoordinator 0 is for
    groups.
    """
    assert END_TXN.valid_versions == (0, 4)
    assert ADD_PARTITIONS_TO_TXN.valid_versions == (0, 3)
    assert FIND_COORDINATOR.valid_versions == (1, 4)


@given(versions(FIND_COORDINATOR), st.sampled_from([(GROUP, 0), (TRANSACTION, 1)]), some_names)
def test_find_coordinator_request_equals_kafka_pythons(
    version: int, key_type: tuple[bytes, int], keys: list[str]
) -> None:
    """
    A FindCoordinator request is kafka-python's, byte for byte, for one id and for many.
    """
    keys = keys if version >= 4 else keys[:1]
    reference = metadata.FindCoordinatorRequest(
        key=keys[0], key_type=key_type[1], coordinator_keys=keys, version=version
    )

    actual = find_coordinator_request(version, key_type[0], keys)

    assert sent(actual) == sent_by_kafka_python(reference)


@given(some_names)
def test_describe_transactions_request_equals_kafka_pythons(transactional_ids: list[str]) -> None:
    """
    A DescribeTransactions request is kafka-python's, byte for byte.
    """
    reference = admin.DescribeTransactionsRequest(transactional_ids=transactional_ids, version=0)

    assert sent(describe_transactions_request(0, transactional_ids)) == sent_by_kafka_python(
        reference
    )


@given(st.just([]) | some_names)
def test_list_transactions_request_equals_kafka_pythons(states: list[str]) -> None:
    """
    A ListTransactions request is kafka-python's, byte for byte, with and without states.
    """
    reference = admin.ListTransactionsRequest(
        state_filters=states, producer_id_filters=[], version=0
    )

    assert sent(list_transactions_request(0, states)) == sent_by_kafka_python(reference)


@given(versions(DESCRIBE_CONFIGS), some_names, st.lists(names, max_size=3))
def test_describe_configs_request_equals_kafka_pythons(
    version: int, topics: list[str], settings: list[str]
) -> None:
    """
    A DescribeConfigs request is kafka-python's, byte for byte, without synonyms or documentation.
    """
    kind = admin.DescribeConfigsRequest.DescribeConfigsResource
    reference = admin.DescribeConfigsRequest(
        resources=[
            kind(resource_type=2, resource_name=topic, configuration_keys=settings)
            for topic in topics
        ],
        include_synonyms=False,
        include_documentation=False,
        version=version,
    )

    actual = describe_configs_request(version, topics, settings)

    assert sent(actual) == sent_by_kafka_python(reference)


# --- Responses ------------------------------------------------------------------------------------


@given(versions(INIT_PRODUCER_ID), int32, int16, identities)
def test_init_producer_id_response_is_decoded(
    version: int, throttle: int, error: int, identity: ProducerIdAndEpoch
) -> None:
    """
    The producer id and epoch are decoded as by kafka-python, in every version.
    """
    reference = producer.InitProducerIdResponse(
        throttle_time_ms=throttle,
        error_code=error,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
    )

    response, expected = decoded_by_both(INIT_PRODUCER_ID, version, reference)

    assert response == (throttle, error, expected.producer_id, expected.producer_epoch)


ADDED = producer.AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
ADDED_PARTITION = ADDED.AddPartitionsToTxnPartitionResult
added_partitions = st.builds(ADDED_PARTITION, partition_index=int32, partition_error_code=int16)
added_topics = st.builds(
    ADDED, name=names, results_by_partition=st.lists(added_partitions, max_size=3)
)


@given(versions(ADD_PARTITIONS_TO_TXN), int32, st.lists(added_topics, max_size=3))
def test_add_partitions_to_txn_response_is_decoded(
    version: int, throttle: int, topics: list[Any]
) -> None:
    """
    The error code of every partition is decoded as by kafka-python, in every version.
    """
    reference = producer.AddPartitionsToTxnResponse(
        throttle_time_ms=throttle, results_by_topic_v3_and_below=topics
    )

    response, expected = decoded_by_both(ADD_PARTITIONS_TO_TXN, version, reference)

    assert response.error_codes == [
        partition.partition_error_code
        for topic in expected.results_by_topic_v3_and_below
        for partition in topic.results_by_partition
    ]


@given(versions(END_TXN), int32, int16)
def test_end_txn_response_is_decoded(version: int, throttle: int, error: int) -> None:
    """
    The error code is decoded as by kafka-python, in every version.
    """
    reference = producer.EndTxnResponse(throttle_time_ms=throttle, error_code=error)

    response, expected = decoded_by_both(END_TXN, version, reference)

    assert response == (throttle, expected.error_code)


COORDINATOR = metadata.FindCoordinatorResponse.Coordinator
coordinators = st.builds(
    COORDINATOR,
    key=names,
    node_id=int32,
    host=texts,
    port=int32,
    error_code=int16,
    error_message=messages,
)


@given(versions(FIND_COORDINATOR), int32, st.lists(coordinators, min_size=1, max_size=3))
def test_find_coordinator_response_is_decoded(
    version: int, throttle: int, entries: list[Any]
) -> None:
    """
    One or many coordinators are decoded as by kafka-python, with and without error messages.
    """
    (first, *_) = entries
    reference = metadata.FindCoordinatorResponse(
        throttle_time_ms=throttle,
        error_code=first.error_code,
        error_message=first.error_message,
        node_id=first.node_id,
        host=first.host,
        port=first.port,
        coordinators=entries,
    )

    response, expected = decoded_by_both(FIND_COORDINATOR, version, reference)

    expected_coordinators = expected.coordinators if version >= 4 else [expected]
    assert response.coordinators == [
        (item.key if version >= 4 else None, item.host, item.port, item.error_code)
        for item in expected_coordinators
    ]


DESCRIBED = admin.DescribeTransactionsResponse.TransactionState
states = st.builds(
    DESCRIBED,
    error_code=int16,
    transactional_id=texts,
    transaction_state=texts,
    transaction_timeout_ms=int32,
    transaction_start_time_ms=int64,
    producer_id=int64,
    producer_epoch=int16,
    topics=st.lists(
        st.builds(DESCRIBED.TopicData, topic=names, partitions=st.lists(int32, max_size=3)),
        max_size=3,
    ),
)


@given(int32, st.lists(states, max_size=3))
def test_describe_transactions_response_is_decoded(throttle: int, entries: list[Any]) -> None:
    """
    Transaction states are decoded as by kafka-python; partitions are only counted.
    """
    reference = admin.DescribeTransactionsResponse(
        throttle_time_ms=throttle, transaction_states=entries
    )

    response, expected = decoded_by_both(DESCRIBE_TRANSACTIONS, 0, reference)

    assert len(response.transaction_states) == len(expected.transaction_states)
    for described, expected_state in zip(
        response.transaction_states, expected.transaction_states, strict=True
    ):
        partitions = sum(len(topic.partitions) for topic in expected_state.topics)
        assert described._asdict() == {
            name: getattr(expected_state, name)
            for name in described._fields
            if name != "partitions"
        } | {"partitions": partitions}


CONFIGS = admin.DescribeConfigsResponse.DescribeConfigsResult
SETTING = CONFIGS.DescribeConfigsResourceResult
SYNONYM = SETTING.DescribeConfigsSynonym
settings_of_topic = st.builds(
    SETTING,
    name=names,
    value=messages,
    read_only=st.booleans(),
    config_source=int8,
    is_sensitive=st.booleans(),
    synonyms=st.lists(st.builds(SYNONYM, name=texts, value=messages, source=int8), max_size=2),
    config_type=int8,
    documentation=messages,
)
configs = st.builds(
    CONFIGS,
    error_code=int16,
    error_message=messages,
    resource_type=int8,
    resource_name=texts,
    configs=st.lists(settings_of_topic, max_size=3),
)


@given(versions(DESCRIBE_CONFIGS), int32, st.lists(configs, max_size=3))
def test_describe_configs_response_is_decoded(
    version: int, throttle: int, results: list[Any]
) -> None:
    """
    The settings' values are decoded as by kafka-python; sources, synonyms and documentation are
    skipped.
    """
    reference = admin.DescribeConfigsResponse(throttle_time_ms=throttle, results=results)

    response, expected = decoded_by_both(DESCRIBE_CONFIGS, version, reference)

    assert response.topics == [
        (
            result.error_code,
            result.resource_name,
            {setting.name: setting.value for setting in result.configs},
        )
        for result in expected.results
    ]


LISTED = admin.ListTransactionsResponse.TransactionState
listed = st.builds(LISTED, transactional_id=texts, producer_id=int64, transaction_state=texts)


@given(int32, int16, st.lists(texts, max_size=2), st.lists(listed, max_size=3))
def test_list_transactions_response_is_decoded(
    throttle: int, error: int, unknown: list[str], entries: list[Any]
) -> None:
    """
    Transactional ids are decoded as by kafka-python.
    """
    reference = admin.ListTransactionsResponse(
        throttle_time_ms=throttle,
        error_code=error,
        unknown_state_filters=unknown,
        transaction_states=entries,
    )

    response, expected = decoded_by_both(LIST_TRANSACTIONS, 0, reference)

    assert response.error_code == expected.error_code
    assert response.transactional_ids == [
        item.transactional_id for item in expected.transaction_states
    ]


WRITTEN = producer.ProduceResponse.TopicProduceResponse
WRITTEN_PARTITION = WRITTEN.PartitionProduceResponse
REJECTED = WRITTEN_PARTITION.BatchIndexAndErrorMessage
LEADER = WRITTEN_PARTITION.LeaderIdAndEpoch
ENDPOINT = producer.ProduceResponse.NodeEndpoint
written_partitions = st.builds(
    WRITTEN_PARTITION,
    index=int32,
    error_code=int16,
    base_offset=int64,
    log_append_time_ms=int64,
    log_start_offset=int64,
    record_errors=st.lists(
        st.builds(REJECTED, batch_index=int32, batch_index_error_message=messages), max_size=3
    ),
    error_message=messages,
    current_leader=st.builds(LEADER, leader_id=int32, leader_epoch=int32),
)
written_topics = st.builds(
    WRITTEN, name=names, partition_responses=st.lists(written_partitions, max_size=3)
)
endpoints = st.builds(ENDPOINT, node_id=int32, host=texts, port=int32, rack=messages)
written = st.builds(
    producer.ProduceResponse,
    responses=st.lists(written_topics, max_size=3),
    throttle_time_ms=int32,
    node_endpoints=st.lists(endpoints, max_size=2),
)


@given(versions(PRODUCE), written)
def test_produce_response_is_decoded(version: int, reference: Any) -> None:
    """
    The result of each batch is decoded as by kafka-python; the current leader is skipped.
    """
    response, expected = decoded_by_both(PRODUCE, version, reference)

    assert response.partitions == {
        TopicPartition(topic.name, partition.index): (
            partition.error_code,
            partition.base_offset,
            [
                RejectedRecord(item.batch_index, item.batch_index_error_message)
                for item in partition.record_errors or ()
            ],
            partition.error_message,
        )
        for topic in expected.responses
        for partition in topic.partition_responses
    }


ENCODING = """
from pyspark_pykafka.sink.micro_batch_committer import commit_micro_batch
from pyspark_pykafka.engines.selection import transaction_client
from pyspark_pykafka.offsets import TopicPartition
from pyspark_pykafka.settings import KafkaSettings
from pyspark_pykafka.engines.wire.producer import producer
from pyspark_pykafka.engines.wire.records.record_batch import ProducerIdAndEpoch
from pyspark_pykafka.engines.wire.protocol.produce import produce_request
from pyspark_pykafka.engines.wire.protocol.find_coordinator import *
from pyspark_pykafka.engines.wire.protocol.transaction_states import *
from pyspark_pykafka.engines.wire.protocol.transactions import *

settings = {"bootstrap.servers": "localhost:1", "security.protocol": "PROTOCOL"}
with transaction_client(KafkaSettings(tuple(settings.items()))):
    tp = TopicPartition("t", 0)
    for request in (
        init_producer_id_request(4, "x", 1),
        add_partitions_to_txn_request(3, "x", ProducerIdAndEpoch(1, 2), [tp]),
        end_txn_request(4, "x", ProducerIdAndEpoch(1, 2), commit=True),
        find_coordinator_request(4, TRANSACTION, ["x"]),
        describe_transactions_request(0, ["x"]),
        list_transactions_request(0, ["Ongoing"]),
        produce_request(12, {tp: [b"b"]}, 1),
    ):
        request.encode(1, "c")
"""


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_writing_path_leaves_kafka_python_out(protocol: str) -> None:
    """
    A fresh process encodes the requests of a write and a commit without importing a Kafka client.
    """
    program = ENCODING.replace("PROTOCOL", protocol)

    assert not {"kafka", "confluent_kafka", "crc32c", "pandas"} & modules_after(program)
