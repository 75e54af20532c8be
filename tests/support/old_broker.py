"""
A broker of the oldest version that the wire engine supports, with the ZooKeeper that it needs.
"""

from __future__ import annotations

from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING

from pyspark_pykafka.testing import ExternalCluster, ZooKeeper, readiness
from pyspark_pykafka.testing.kraft import java_command
from pyspark_pykafka.testing.ports import free_ports
from pyspark_pykafka.testing.processes import Processes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

VERSION = "2.4.1"
START_SECONDS = 60.0
NAME = "old-kafka"


class OldBroker(ExternalCluster):
    """
    The broker, with the folder of its log.
    """

    def __init__(self, bootstrap: str, data_folder: Path) -> None:
        super().__init__(bootstrap)
        self.data_folder = data_folder


@contextmanager
def old_broker() -> Iterator[OldBroker]:
    """
    Run the broker during the ``with`` block.
    """
    with ZooKeeper() as zookeeper, closing(Processes(NAME)) as processes:
        (port,) = free_ports(1)
        broker = OldBroker(f"127.0.0.1:{port}", processes.folder / "data")
        _start(processes, zookeeper.hosts, broker)
        yield broker


def _start(processes: Processes, zookeeper: str, broker: OldBroker) -> None:
    settings = processes.folder / "server.properties"
    settings.write_text(
        f"broker.id=1\nzookeeper.connect={zookeeper}\nlog.dirs={broker.data_folder}\n"
        f"listeners=PLAINTEXT://{broker.bootstrap}\nauto.create.topics.enable=false\n"
        "offsets.topic.replication.factor=1\noffsets.topic.num.partitions=1\n"
        "transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n"
        "transaction.state.log.num.partitions=1\n"
        # Test records are older than a week; retention would delete them 30 s after the start.
        "log.retention.ms=-1\n"
    )
    processes.start(NAME, [*java_command(VERSION), "kafka.Kafka", str(settings)])
    processes.wait_ready(NAME, partial(readiness.missing_brokers, broker.admin, {1}), START_SECONDS)
