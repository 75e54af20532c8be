"""
A real Kafka broker and ZooKeeper for tests and demos, started and ended by Python.

The pytest fixtures `kafka_cluster`, `topic` and `zookeeper` come with the installed package.
"""

from __future__ import annotations

from .client import KafkaAccess
from .cluster import KAFKA_VERSION, KafkaCluster
from .external import ExternalCluster
from .jars import FetchError, fetch_jars, spark_connector_jars
from .java import JavaNotFoundError, find_java
from .processes import ServerError
from .records import DeliveryError, Record
from .select_cluster import AnyCluster, choose_cluster
from .waiting import NotReadyError
from .zookeeper import ZooKeeper

__all__ = [
    "KAFKA_VERSION",
    "AnyCluster",
    "DeliveryError",
    "ExternalCluster",
    "FetchError",
    "JavaNotFoundError",
    "KafkaAccess",
    "KafkaCluster",
    "NotReadyError",
    "Record",
    "ServerError",
    "ZooKeeper",
    "choose_cluster",
    "fetch_jars",
    "find_java",
    "spark_connector_jars",
]
