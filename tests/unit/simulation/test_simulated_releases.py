"""
Simulated brokers of older releases of Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kafka.protocol.consumer import FetchRequest
from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest
from tests.simulation.kafka.releases import KAFKA_2_7, KAFKA_3_0, NEWEST
from tests.support.simulated_kafka import SimulatedKafka

if TYPE_CHECKING:
    from tests.simulation.kafka.releases import Release

_METADATA, _FETCH, _DESCRIBE_TRANSACTIONS = 3, 1, 65


@pytest.mark.parametrize(
    ("release", "metadata", "fetch", "describes_transactions"),
    [(NEWEST, 13, 17, True), (KAFKA_3_0, 11, 12, True), (KAFKA_2_7, 9, 12, False)],
)
def test_a_broker_advertises_the_versions_of_its_release(
    release: Release, metadata: int, fetch: int, *, describes_transactions: bool
) -> None:
    """
    Brokers before 3.1 fetch by a topic's name, and those before 2.8 have no topic ids.
    """
    kafka = SimulatedKafka(release=release)
    request = ApiVersionsRequest(client_software_name="t", client_software_version="1")
    response = kafka.request(1, request, 3)
    highest = {api.api_key: api.max_version for api in response.api_keys}

    assert (highest[_METADATA], highest[_FETCH]) == (metadata, fetch)
    assert (_DESCRIBE_TRANSACTIONS in highest) is describes_transactions
    assert kafka.cluster.max_version(_METADATA) == metadata


def test_a_version_of_a_later_release_closes_the_connection() -> None:
    """
    A broker cannot read the requests of later releases.
    """
    kafka = SimulatedKafka(release=KAFKA_3_0)

    assert kafka.send(1, MetadataRequest(topics=[]), 11).done
    assert kafka.send(1, FetchRequest(), 13).closed
