"""
The parts of the metadata backends that need no broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Uuid
from hypothesis import given
from hypothesis import strategies as st

from pyspark_pykafka.engines.librdkafka.metadata import AdminMetadata
from pyspark_pykafka.engines.selection import metadata_backend
from pyspark_pykafka.engines.wire.consumer.leader_requests import read_offsets
from pyspark_pykafka.engines.wire.consumer.metadata import WireMetadata
from pyspark_pykafka.engines.wire.consumer.topics import format_topic_id
from pyspark_pykafka.engines.wire.protocol.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
)
from pyspark_pykafka.errors import BrokerUnavailableError, OptionsError, UnknownTopicError
from pyspark_pykafka.offsets import TopicPartition
from pyspark_pykafka.settings import KafkaSettings

if TYPE_CHECKING:
    from uuid import UUID

PLAIN = {"bootstrap.servers": "b:1"}
#: The wire engine does not support this SASL mechanism.
KERBEROS = {**PLAIN, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI"}
REQUESTED = {"t": [ListOffsetsPartition(0, 1, -1), ListOffsetsPartition(1, 1, -1)]}


@given(st.uuids())
def test_topic_ids_have_librdkafkas_form(topic_id: UUID) -> None:
    """
    A topic id is formatted as by librdkafka: a different text in a checkpoint would mean a
    different topic.
    """
    halves = (topic_id.int >> 64, topic_id.int & (2**64 - 1))
    expected = Uuid(*(half - 2**64 if half >= 2**63 else half for half in halves))

    assert format_topic_id(topic_id) == str(expected)


@pytest.mark.parametrize(
    ("options", "engine", "kind"),
    [
        (PLAIN, "auto", WireMetadata),
        (PLAIN, "wire", WireMetadata),
        (PLAIN, "librdkafka", WireMetadata),
        (KERBEROS, "auto", AdminMetadata),
        (KERBEROS, "librdkafka", AdminMetadata),
    ],
)
def test_metadata_uses_wire_wherever_the_settings_allow(
    options: dict[str, str], engine: str, kind: type
) -> None:
    """
    The driver's metadata comes from wire where it can be used, whichever engine reads the records.
    """
    assert type(metadata_backend(KafkaSettings.of(options), "read_committed", engine)) is kind


def test_unavailable_wire_engine_is_an_option_error() -> None:
    """
    Setting engine to wire where wire cannot be used raises OptionsError.
    """
    with pytest.raises(OptionsError, match="engine is 'wire', which cannot be used"):
        metadata_backend(KafkaSettings.of(KERBEROS), "read_committed", "wire")


def test_partition_unknown_to_its_leader_is_retriable() -> None:
    """
    The request is retried: only the metadata shows that a partition was deleted.
    """
    response = ListOffsetsResponse(
        0, [("t", [ListOffsetsPartitionResponse(0, 0, 7), ListOffsetsPartitionResponse(1, 3, -1)])]
    )

    with pytest.raises(UnknownTopicError, match="t-1: not known to its leader") as caught:
        read_offsets(response, REQUESTED)
    assert caught.value.retriable


def test_deposed_leader_is_retriable() -> None:
    """
    NOT_LEADER_OR_FOLLOWER is retried.
    """
    response = ListOffsetsResponse(
        0, [("t", [ListOffsetsPartitionResponse(0, 0, 7), ListOffsetsPartitionResponse(1, 6, -1)])]
    )

    with pytest.raises(BrokerUnavailableError, match="offsets of t-1.*NOT_LEADER_FOR_PARTITION"):
        read_offsets(response, REQUESTED)


def test_missing_partition_in_a_response_is_retriable() -> None:
    """
    A partition that the response lacks is an error, which names it.
    """
    response = ListOffsetsResponse(0, [("t", [ListOffsetsPartitionResponse(0, 0, 7)])])

    with pytest.raises(BrokerUnavailableError, match="t-1: no leader returned the offsets"):
        read_offsets(response, REQUESTED)


def test_missing_leader_epochs_are_left_out() -> None:
    """
    Old brokers, and logs in an old format, have no leader epochs: -1.
    """
    response = ListOffsetsResponse(
        0,
        [("t", [ListOffsetsPartitionResponse(0, 0, 7, 5), ListOffsetsPartitionResponse(1, 0, 3)])],
    )

    log_ends = read_offsets(response, REQUESTED)

    assert log_ends.offsets == {TopicPartition("t", 0): 7, TopicPartition("t", 1): 3}
    assert log_ends.epochs == {TopicPartition("t", 0): 5}
