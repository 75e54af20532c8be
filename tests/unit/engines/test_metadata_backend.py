"""
What of the driver's questions needs no broker to be tested.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Uuid
from hypothesis import given
from hypothesis import strategies as st

from pyspark_pykafka.engines.librdkafka.metadata import AdminMetadata
from pyspark_pykafka.engines.selection import metadata_backend
from pyspark_pykafka.engines.wire.consumer.list_offsets import read_offsets
from pyspark_pykafka.engines.wire.consumer.metadata import WireMetadata, format_topic_id
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
#: The wire engine has no such mechanism.
KERBEROS = {**PLAIN, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI"}
WANTED = {"t": [ListOffsetsPartition(0, 1, -1), ListOffsetsPartition(1, 1, -1)]}


@given(st.uuids())
def test_ids_are_written_as_librdkafka_writes_them(topic_id: UUID) -> None:
    """
    Checkpoints and progress stores hold that text: another one would mean another topic.
    """
    halves = (topic_id.int >> 64, topic_id.int & (2**64 - 1))
    theirs = Uuid(*(half - 2**64 if half >= 2**63 else half for half in halves))

    assert format_topic_id(topic_id) == str(theirs)


@pytest.mark.parametrize(
    ("given", "engine", "kind"),
    [
        (PLAIN, "auto", WireMetadata),
        (PLAIN, "wire", WireMetadata),
        (PLAIN, "librdkafka", AdminMetadata),
        (KERBEROS, "auto", AdminMetadata),
        (KERBEROS, "librdkafka", AdminMetadata),
    ],
)
def test_engine_that_asks(given: dict[str, str], engine: str, kind: type) -> None:
    """
    It is the one that reads.
    """
    assert type(metadata_backend(KafkaSettings.of(given), "read_committed", engine)) is kind


def test_engine_that_cannot_ask() -> None:
    """
    The wire engine asked for by name where it cannot be used is an error of the options.
    """
    with pytest.raises(OptionsError, match="engine is 'wire', which cannot be used"):
        metadata_backend(KafkaSettings.of(KERBEROS), "read_committed", "wire")


def test_partition_that_its_leader_does_not_know() -> None:
    """
    It is asked for again: that it is gone is for the metadata to say.
    """
    answer = ListOffsetsResponse(
        0, [("t", [ListOffsetsPartitionResponse(0, 0, 7), ListOffsetsPartitionResponse(1, 3, -1)])]
    )

    with pytest.raises(UnknownTopicError, match="t-1: not known to its leader") as caught:
        read_offsets(answer, WANTED)
    assert caught.value.retriable


def test_leader_that_is_none_any_more() -> None:
    """
    It says so, and the partition is asked for again.
    """
    answer = ListOffsetsResponse(
        0, [("t", [ListOffsetsPartitionResponse(0, 0, 7), ListOffsetsPartitionResponse(1, 6, -1)])]
    )

    with pytest.raises(BrokerUnavailableError, match="offsets of t-1.*NOT_LEADER_FOR_PARTITION"):
        read_offsets(answer, WANTED)


def test_partition_that_an_answer_leaves_out() -> None:
    """
    Nothing is no offset: whoever took it for that would start elsewhere.
    """
    answer = ListOffsetsResponse(0, [("t", [ListOffsetsPartitionResponse(0, 0, 7)])])

    with pytest.raises(BrokerUnavailableError, match="t-1: no leader returned the offsets"):
        read_offsets(answer, WANTED)


def test_epochs_are_told_where_a_broker_has_them() -> None:
    """
    Those of old brokers, and of logs in an old format, have none: -1.
    """
    answer = ListOffsetsResponse(
        0,
        [("t", [ListOffsetsPartitionResponse(0, 0, 7, 5), ListOffsetsPartitionResponse(1, 0, 3)])],
    )

    found = read_offsets(answer, WANTED)

    assert found.offsets == {TopicPartition("t", 0): 7, TopicPartition("t", 1): 3}
    assert found.epochs == {TopicPartition("t", 0): 5}
