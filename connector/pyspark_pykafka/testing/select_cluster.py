"""
Selects the Kafka that tests run against: our own, one in Docker, or an external cluster.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .cluster import KAFKA_VERSION, KafkaCluster
from .docker import DockerCluster
from .external import ExternalCluster

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .properties import Setting

AnyCluster = KafkaCluster | ExternalCluster


def choose_cluster(
    brokers: int = 1,
    version: str = KAFKA_VERSION,
    config: Mapping[str, Setting] | None = None,
) -> AnyCluster:
    """
    Return the cluster selected by the environment, not started yet.

    PYKAFKA_BOOTSTRAP='host:port' selects a running cluster, PYKAFKA_BROKER=docker one broker in a
    container. Otherwise it is a KafkaCluster.
    """
    bootstrap = os.environ.get("PYKAFKA_BOOTSTRAP")
    if bootstrap:
        return ExternalCluster(bootstrap)
    kind = os.environ.get("PYKAFKA_BROKER") or "jars"
    if kind == "docker":
        return DockerCluster(brokers, version, config)
    if kind != "jars":
        msg = f"PYKAFKA_BROKER is {kind!r}; it must be 'jars' (or unset) or 'docker'."
        raise ValueError(msg)
    return KafkaCluster(brokers, version, config)
