"""
Starts the broker that all measurements read from: the tests' own, with more memory and C2.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec

from pyspark_pykafka.testing import KafkaCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS = 60

# The test broker's own flags choose a quick start; of all places to put flags, Java reads this
# variable last.
JAVA_OPTIONS = "-Xmx2g -XX:TieredStopAtLevel=4"


@contextmanager
def running_broker() -> Iterator[KafkaCluster]:
    """
    Give a broker that is gone, with its data, at the end.
    """
    kafka = KafkaCluster(config={"num.network.threads": 3, "num.io.threads": 8})
    before = os.environ.get("_JAVA_OPTIONS")
    os.environ["_JAVA_OPTIONS"] = JAVA_OPTIONS
    try:
        kafka.start()
    finally:
        del os.environ["_JAVA_OPTIONS"]
        if before is not None:
            os.environ["_JAVA_OPTIONS"] = before
    try:
        yield kafka
    finally:
        kafka.stop()


def records_in(kafka: KafkaCluster, topic: str) -> int:
    """
    Ask the broker how many records a topic holds.
    """
    admin = kafka.admin()
    partitions = admin.list_topics(topic, timeout=SECONDS).topics[topic].partitions
    places = [TopicPartition(topic, number) for number in partitions]
    counts = 0
    for spec, sign in ((OffsetSpec.earliest(), -1), (OffsetSpec.latest(), 1)):
        asked = admin.list_offsets(dict.fromkeys(places, spec), request_timeout=SECONDS)
        counts += sign * sum(future.result(SECONDS).offset for future in asked.values())
    return counts


def delete_topic(kafka: KafkaCluster, topic: str) -> None:
    """
    Remove a topic and free its disk.
    """
    # An admin client that nobody holds any more drops what it was asked.
    admin = kafka.admin()
    admin.delete_topics([topic])[topic].result(SECONDS)
