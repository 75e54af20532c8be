"""
The page of a cluster, with progress stores in memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.memory_cluster import Cluster
from tests.support.memory_store import MemoryStore, Server

from pyspark_pykafka.offsets import TopicPartition
from pyspark_pykafka.progress.record import ProgressRecord
from pyspark_pykafka.ui import cluster_source
from pyspark_pykafka.ui.cluster_source import ClusterSource

if TYPE_CHECKING:
    import pytest

    from pyspark_pykafka.options import SourceOptions


def test_stores_of_one_name_are_all_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A consumer group and a ZooKeeper id may have the same name: each is a query with its own id,
    under which the page keeps its lag over time.
    """
    cluster = Cluster()
    cluster.create_topic("t", 100)
    servers = {
        "consumerGroup flights": Server({TopicPartition("t", 0): ProgressRecord(100, batch=5)}),
        "zookeeper zk:2181/pykafka/flights": Server(
            {TopicPartition("t", 0): ProgressRecord(100, batch=7)}
        ),
    }

    def make_store(options: SourceOptions) -> MemoryStore:
        return MemoryStore(servers[options.progress_store.name])

    monkeypatch.setattr(cluster_source, "MetadataClient", lambda *_: cluster)
    monkeypatch.setattr(cluster_source, "make_progress_store", make_store)
    stores = [
        {"progressStore": "consumerGroup", "kafka.group.id": "flights"},
        {"progressStore": "zookeeper", "zookeeperHosts": "zk:2181", "zookeeperId": "flights"},
    ]

    page = ClusterSource({"kafka.bootstrap.servers": "127.0.0.1:1"}, stores)()

    assert [(query.id, query.name, query.batch) for query in page.queries] == [
        ("consumerGroup flights", "flights", 5),
        ("zookeeper zk:2181/pykafka/flights", "flights", 7),
    ]
