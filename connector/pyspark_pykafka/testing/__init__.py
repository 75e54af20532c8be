"""
A real Kafka broker and a real ZooKeeper for tests and demos, started and stopped by Python.

The pytest fixtures `kafka_cluster`, `topic` and `zookeeper` come with the installed package.

```python
from pyspark_pykafka.testing import KafkaCluster, Record

with KafkaCluster() as kafka:
    kafka.create_topic("flights")
    kafka.produce("flights", [Record(b"value", key=b"key")])
```
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
