"""
A simulated and a real cluster of one broker each, which must behave in the same way.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from tests.support.served_kafka import RawKafka, SimulatedAccess

from pyspark_pykafka.testing.plugin import unique_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_pykafka.testing.client import KafkaAccess

CLUSTERS = ("simulated", "real")


@pytest.fixture(scope="module")
def simulated_cluster() -> Iterator[SimulatedAccess]:
    """
    One simulated broker on a loopback port.
    """
    with SimulatedAccess() as cluster:
        yield cluster


@pytest.fixture(params=CLUSTERS)
def cluster(request: pytest.FixtureRequest) -> KafkaAccess:
    """
    A cluster of one broker, simulated or real.
    """
    name = "simulated_cluster" if request.param == "simulated" else "kafka_cluster"
    access: KafkaAccess = request.getfixturevalue(name)
    return access


@pytest.fixture
def topic(cluster: KafkaAccess, request: pytest.FixtureRequest) -> str:
    """
    A new topic of one partition.
    """
    return cluster.create_topic(unique_name(request.node.name))


@pytest.fixture
def raw(cluster: KafkaAccess, topic: str) -> Iterator[RawKafka]:
    """
    A connection for single requests.
    """
    with closing(RawKafka(cluster.bootstrap, topic)) as requests:
        yield requests
