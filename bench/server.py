"""
Starts the broker of all measurements: the test broker with more memory and the C2 compiler.
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

# The test broker's flags favour a quick start; Java reads _JAVA_OPTIONS last, so it overrides them.
JAVA_OPTIONS = "-Xmx2g -XX:TieredStopAtLevel=4"


@contextmanager
def running_broker() -> Iterator[KafkaCluster]:
    """
    Yield a running broker, and remove it with its data at the end.
    """
    kafka = KafkaCluster(config={"num.network.threads": 3, "num.io.threads": 8})
    previous_options = os.environ.get("_JAVA_OPTIONS")
    os.environ["_JAVA_OPTIONS"] = JAVA_OPTIONS
    try:
        kafka.start()
    finally:
        del os.environ["_JAVA_OPTIONS"]
        if previous_options is not None:
            os.environ["_JAVA_OPTIONS"] = previous_options
    try:
        yield kafka
    finally:
        kafka.stop()


def records_in(kafka: KafkaCluster, topic: str) -> int:
    """
    Return the number of offsets in a topic; without transactions this is the number of records.
    """
    admin = kafka.admin()
    partitions = admin.list_topics(topic, timeout=SECONDS).topics[topic].partitions
    tps = [TopicPartition(topic, number) for number in partitions]
    total = 0
    for spec, sign in ((OffsetSpec.earliest(), -1), (OffsetSpec.latest(), 1)):
        futures = admin.list_offsets(dict.fromkeys(tps, spec), request_timeout=SECONDS)
        total += sign * sum(future.result(SECONDS).offset for future in futures.values())
    return total


def delete_topic(kafka: KafkaCluster, topic: str) -> None:
    """
    Delete a topic to free disk space.
    """
    # Keep a reference: without one, the admin client would be closed before its request is done.
    admin = kafka.admin()
    admin.delete_topics([topic])[topic].result(SECONDS)
