"""
Random faults of the simulated cluster lose no acknowledged record and leave no request unanswered.
"""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from tests.simulation.kafka.codes import Code
from tests.simulation.kafka.settings import Delay
from tests.support.kafka_requests import produced
from tests.support.simulated_kafka import SimulatedKafka

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.simulated_kafka import Pending

PARTITION = ("t", 0)


@dataclass
class Run:
    """
    One run: a producer that retries and transactions, while brokers fail.
    """

    seed: int
    sent: dict[bytes, Pending] = field(default_factory=dict)
    outcomes: dict[bytes, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Slow, so that faults interrupt replication.
        self.kafka = SimulatedKafka(
            seed=self.seed,
            replication=Delay(0.001, 0.5),
            markers=Delay(0.001, 3),
            coordinator_write=Delay(0.001, 0.5),
        )
        self.kafka.cluster.create_topic("t", 1)
        self.random = random.Random(self.seed)
        self.kafka.time.run(1)

    def go(self) -> None:
        for step in range(30):
            self.fault()
            for _ in range(3):
                self.write(b"%d" % len(self.sent))
            for part in range(2):
                # If a broker dies first, the outcome is unknown.
                with suppress(ConnectionResetError):
                    self.transaction(b"x%d-%d" % (step, part))
            self.fault()
            self.fault()
            self.repair()
        self.kafka.time.run(60)

    def acknowledged(self) -> list[bytes]:
        return [
            value
            for value, pending in self.sent.items()
            if pending.response is not None and not produced(pending.response).error_code
        ]

    def fault(self) -> None:
        cluster = self.kafka.cluster
        node = self.random.choice(cluster.node_ids)
        faults: list[Callable[[], object]] = [
            lambda: cluster.crash(node),
            lambda: cluster.isolate(node),
            lambda: cluster.pause(node, self.random.uniform(0, 20)),
            lambda: cluster.lag_replica(*PARTITION, node, self.random.uniform(0, 40)),
            lambda: cluster.move_leader(*PARTITION, held_seconds=self.random.uniform(0, 2)),
            lambda: cluster.move_coordinator("x"),
        ]
        self.random.choice(faults)()
        self.kafka.time.run(self.random.choice([0.0, 0.1, 1.0, 15.0]))

    def repair(self) -> None:
        self.kafka.cluster.heal()
        for node in self.kafka.cluster.node_ids:
            self.kafka.cluster.start(node)
        # Longer than a pause or a lag.
        self.kafka.time.run(45)
        assert len(self.kafka.cluster.in_sync(*PARTITION)) == 3

    def write(self, value: bytes) -> None:
        """
        Write to the leader, or to another node.
        """
        node = self.random.choice([self.kafka.leader, *self.kafka.cluster.node_ids])
        if node < 0:
            return
        self.sent[value] = self.kafka.send_produce(value, node=node, timeout_ms=3000)
        self.kafka.time.run(self.random.choice([0.0, 0.5, 5.0]))

    def transaction(self, value: bytes) -> None:
        """
        Write a transaction; its EndTxn may be rejected, or get no response.
        """
        kafka = self.kafka
        response = kafka.init("x")
        if response.error_code:
            return
        identity = (response.producer_id, response.producer_epoch)
        if kafka.join("x", identity) or kafka.leader < 0:
            return
        if kafka.write("x", identity, value).error_code:
            return
        commit = self.random.random() < 0.5
        if self.random.random() < 0.3:
            self.fault()
        if kafka.end("x", identity, commit=commit) == Code.NONE:
            self.outcomes[value] = commit


@pytest.mark.parametrize("seed", range(15))
def test_faults_lose_nothing(seed: int) -> None:
    """
    Without an unclean election, each record acknowledged with acks=all is in the log once, ended
    transactions have their outcome, and each request is answered exactly once.
    """
    run = Run(seed)
    run.go()
    acknowledged, outcomes = run.acknowledged(), run.outcomes
    cluster = run.kafka.cluster
    records = cluster.records(*PARTITION)
    committed = [r.value for r in records if r.state == "committed"]
    assert acknowledged
    assert {*outcomes.values()} == {True, False}
    assert [value for value in acknowledged if committed.count(value) != 1] == []
    states = {r.value: r.state for r in records}
    expected = {v: "committed" if commit else "aborted" for v, commit in outcomes.items()}
    assert {value: states[value] for value in expected} == expected
    assert {pending.replies for pending in run.sent.values()} == {1}
    end = cluster.log_end(*PARTITION)
    assert cluster.high_watermark(*PARTITION) == end
    assert cluster.last_stable_offset(*PARTITION) == end
    offsets = [r.offset for r in records]
    assert offsets == sorted(set(offsets))


def test_replicas_agree_after_faults() -> None:
    """
    Once all brokers are in sync, their logs have the same batches.
    """
    run = Run(99)
    run.go()
    logs = [replica.log for replica in run.kafka.cluster.replica_states(*PARTITION)]
    assert len(logs) == 3
    assert logs[0].batches == logs[1].batches == logs[2].batches
    assert logs[0].producers.ended == logs[1].producers.ended == logs[2].producers.ended
