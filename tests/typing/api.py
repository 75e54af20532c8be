"""
The public API as users' code has it; checked by mypy and never run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_pykafka import DefaultSource, register
from pyspark_pykafka.errors import DataLossError, PykafkaError
from pyspark_pykafka.testing import KafkaCluster, Record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def registering(spark: SparkSession) -> str:
    register(spark)
    return DefaultSource.name()


def a_broker() -> list[Record]:
    with KafkaCluster(brokers=3, version="4.3.1", config={"log.retention.ms": 1000}) as kafka:
        kafka.create_topic("t", partitions=2)
        kafka.produce("t", [Record(b"v", key=b"k", headers=(("h", None),))])
        kafka.kill(1)
        kafka.restart(1)
        return kafka.consume("t")


def telling(error: PykafkaError) -> bool:
    return isinstance(error, DataLossError) or error.retriable
