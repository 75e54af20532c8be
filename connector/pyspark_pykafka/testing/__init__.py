"""A real Kafka broker and ZooKeeper for tests and demos, started and ended by Python."""

from __future__ import annotations

from .access import KafkaAccess
from .cluster import KafkaCluster
from .jars import FetchError, fetch_jars, spark_connector_jars
from .java import JavaNotFoundError, find_java
from .processes import ServerError
from .records import DeliveryError, Record
from .zookeeper import ZooKeeper

__all__ = [
    "DeliveryError",
    "FetchError",
    "JavaNotFoundError",
    "KafkaAccess",
    "KafkaCluster",
    "Record",
    "ServerError",
    "ZooKeeper",
    "fetch_jars",
    "find_java",
    "spark_connector_jars",
]
