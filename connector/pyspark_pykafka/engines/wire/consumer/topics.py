"""
Converts the topics of a Metadata response for the driver.
"""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64decode
from typing import TYPE_CHECKING
from uuid import UUID

from pyspark_pykafka.engines.error_codes import KafkaErrorCode
from pyspark_pykafka.engines.error_mapping import map_read_error_code
from pyspark_pykafka.engines.metadata_contract import Topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_pykafka.engines.wire.protocol.metadata import MetadataResponse, TopicMetadata


def existing_topics(
    response: MetadataResponse, action: str, matches: Callable[[str], object] = lambda _: True
) -> dict[str, TopicMetadata]:
    """
    Return the topics that exist and match, by name.

    Raises the error of a matching topic, unless the topic only lacks a leader.
    """
    topics = {}
    for topic in response.topics:
        error = topic.error_code
        if error == KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            continue
        if topic.name is None or not matches(topic.name):
            continue
        # Without a leader, a topic still has its partitions in the response.
        if error not in {KafkaErrorCode.NONE, KafkaErrorCode.LEADER_NOT_AVAILABLE}:
            raise map_read_error_code(error, action)
        topics[topic.name] = topic
    return topics


def to_topic(metadata: TopicMetadata) -> Topic:
    """
    Return the id and the partitions of a topic.
    """
    partitions = sorted([partition.partition_index for partition in metadata.partitions])
    topic_id = None if metadata.topic_id is None else format_topic_id(metadata.topic_id)
    return Topic(topic_id, metadata.is_internal, partitions)


def format_topic_id(topic_id: UUID) -> str:
    """
    Return the text of a topic id, in the form that checkpoints and progress stores hold.
    """
    # librdkafka's form, with + and /; Kafka's own tools print - and _ instead.
    return b64encode(topic_id.bytes).rstrip(b"=").decode()


def parse_topic_id(text: str) -> UUID:
    """
    Return a topic id from its text, in Kafka's form or in librdkafka's.
    """
    # Base64 without padding; this decodes both alphabets.
    return UUID(bytes=urlsafe_b64decode(f"{text}=="))
