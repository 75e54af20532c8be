"""
Real clients of the simulated cluster go on while its leaders and coordinators move.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from tests.support.served_kafka import SimulatedAccess, values, wire_values

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.kafka import SimulatedCluster

SECONDS = 60.0


@pytest.fixture
def moving() -> Iterator[SimulatedAccess]:
    """
    Three simulated brokers with a topic ``t``, whose leader and coordinators move all the time.
    """

    def move(cluster: SimulatedCluster) -> None:
        cluster.move_leader("t", 0)
        for name in ("x", "t"):
            cluster.move_coordinator(name)

    with SimulatedAccess(3) as served:
        served.call(lambda cluster: cluster.create_topic("t", 1))
        # librdkafka looks for a coordinator once or twice a second.
        served.every(0.9, move)
        yield served


def test_librdkafka_commits_transactions(moving: SimulatedAccess) -> None:
    """
    A transactional producer's committed records are read once, and aborted ones are not.
    """
    client = Producer(
        {
            "bootstrap.servers": moving.bootstrap,
            "transactional.id": "x",
            "linger.ms": 0,
            "log_level": 0,
        }
    )
    client.init_transactions(SECONDS)
    expected = []
    for number in range(15):
        client.begin_transaction()
        client.produce("t", b"%d" % number)
        assert client.flush(SECONDS) == 0
        if number % 3:
            client.commit_transaction(SECONDS)
            expected.append(b"%d" % number)
        else:
            client.abort_transaction(SECONDS)
    committed = {"isolation.level": "read_committed"}
    assert moving.call(lambda cluster: cluster.leader_epoch("t", 0)) >= 2
    assert wire_values(moving, "t") == values(moving, "t", **committed) == expected
