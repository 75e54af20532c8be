"""
Real clients of the simulated cluster continue while its leaders and coordinators move.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from tests.support.producing import write
from tests.support.served_kafka import SimulatedAccess, values, wire_values

from pyspark_pykafka.testing.waiting import wait_until

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


def test_the_wire_engine_writes_each_record_once(moving: SimulatedAccess) -> None:
    """
    An idempotent producer writes all records once and in order.
    """
    written: list[bytes] = []
    while moving.call(lambda cluster: cluster.leader_epoch("t", 0)) < 4:
        chunk = [b"%d" % number for number in range(len(written), len(written) + 1000)]
        rows = pa.RecordBatch.from_pydict({"value": chunk})
        assert write(moving.bootstrap, [rows], "t", batch_size=1000) == len(rows)
        written += chunk
    assert wire_values(moving, "t") == written


def await_stable(moving: SimulatedAccess) -> None:
    """
    Wait until the markers of the last transaction are written, and replicated: until then readers
    see the log up to that transaction only.
    """

    def blocker() -> str | None:
        end = moving.call(lambda c: c.records("t", 0))[-1].offset + 1
        stable = moving.call(lambda c: c.last_stable_offset("t", 0))
        return None if stable == end else f"stable up to {stable} of {end}"

    wait_until(blocker, SECONDS)


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
    number = 0
    while moving.call(lambda cluster: cluster.leader_epoch("t", 0)) < 4:
        number += 1
        client.begin_transaction()
        client.produce("t", b"%d" % number)
        assert client.flush(SECONDS) == 0
        if number % 3:
            client.commit_transaction(SECONDS)
            expected.append(b"%d" % number)
        else:
            client.abort_transaction(SECONDS)
    committed = {"isolation.level": "read_committed"}
    await_stable(moving)
    assert wire_values(moving, "t") == values(moving, "t", **committed) == expected
