"""
The clusters that a worker process keeps between tasks, one for each configuration.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from pyspark_pykafka.engines.client_pool import ClientPool
from pyspark_pykafka.engines.wire.network.cluster import Cluster
from pyspark_pykafka.settings.wire_config import wire_config

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from pyspark_pykafka.settings import KafkaSettings
    from pyspark_pykafka.settings.wire_config import WireConfig

_pool: ClientPool[Cluster] = ClientPool(Cluster.close)


def borrowed_cluster(kafka: KafkaSettings) -> AbstractContextManager[Cluster]:
    """
    Lend the cluster of these settings; its connections stay open afterwards.
    """
    config = _config(kafka)
    return _pool.borrow(config, lambda: Cluster(config))


# Cached: translating the settings takes up to half a millisecond per task.
@lru_cache(maxsize=16)
def _config(kafka: KafkaSettings) -> WireConfig:
    return wire_config(kafka)
