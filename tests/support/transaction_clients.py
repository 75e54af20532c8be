"""
Clients of stub transaction coordinators.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark_pykafka.engines.wire.network.cluster import Cluster
from pyspark_pykafka.engines.wire.transactions.transactions import Transactions
from pyspark_pykafka.settings import KafkaSettings
from pyspark_pykafka.settings.wire_config import wire_producer_config

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.stub_coordinators import StubCoordinators


@contextmanager
def connected(stubs: StubCoordinators, **settings: object) -> Iterator[Transactions]:
    """
    Yield a client of the coordinators, with Kafka's ``settings`` (``max_block_ms=500``).
    """
    options = {name.replace("_", "."): str(value) for name, value in settings.items()}
    kafka = KafkaSettings.of({"bootstrap.servers": stubs.bootstrap, **options})
    config = wire_producer_config(kafka)
    cluster = Cluster(config.wire)
    try:
        yield Transactions(cluster, config)
    finally:
        cluster.close()
