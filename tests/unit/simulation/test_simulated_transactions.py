"""
Transactions of the simulated cluster: the coordinator's states, markers and fencing.
"""

from __future__ import annotations

from typing import Any

import pytest
from kafka.protocol.admin import DescribeTransactionsRequest, ListTransactionsRequest
from kafka.protocol.metadata import FindCoordinatorRequest
from tests.simulation.kafka.batches import marker_batch
from tests.simulation.kafka.codes import Code
from tests.simulation.kafka.settings import Delay
from tests.support.simulated_kafka import SimulatedKafka


@pytest.fixture
def kafka() -> SimulatedKafka:
    """
    Three brokers with a topic ``t``, whose coordinators have loaded their ids.
    """
    return simulated_kafka()


def simulated_kafka(**settings: Any) -> SimulatedKafka:
    kafka = SimulatedKafka(**settings)
    kafka.cluster.create_topic("t", 1)
    kafka.time.run(1)
    return kafka


def states(kafka: SimulatedKafka) -> list[tuple[bytes | None, str]]:
    return [(r.value, r.state) for r in kafka.cluster.records("t", 0) if r.state != "marker"]


def state(kafka: SimulatedKafka, name: str) -> str:
    transaction = kafka.cluster.transaction(name)
    assert transaction is not None
    return transaction.state


def test_committed_records_become_visible(kafka: SimulatedKafka) -> None:
    """
    Until the marker is written the last stable offset stays before an open transaction.
    """
    identity = kafka.begin("x")
    kafka.write("x", identity, b"a")
    kafka.produce(b"plain")
    before = kafka.fetch(0, committed=True)
    assert (before.high_watermark, before.last_stable_offset, before.records) == (2, 0, b"")
    assert kafka.list_offset(committed=True).offset == 0
    assert states(kafka) == [(b"a", "open"), (b"plain", "committed")]
    assert kafka.end("x", identity, commit=True) == Code.NONE
    kafka.time.run(1)
    assert state(kafka, "x") == "CompleteCommit"
    after = kafka.fetch(0, committed=True)
    assert (after.last_stable_offset, after.aborted_transactions) == (3, [])
    assert states(kafka) == [(b"a", "committed"), (b"plain", "committed")]


def test_aborted_transactions_are_named(kafka: SimulatedKafka) -> None:
    """
    A read_committed reader gets all records, and the aborted transactions to filter out.
    """
    kafka.produce(b"plain")
    identity = kafka.begin("x")
    kafka.write("x", identity, b"a")
    assert kafka.end("x", identity, commit=False) == Code.NONE
    kafka.time.run(1)
    answer = kafka.fetch(0, committed=True)
    assert [(t.producer_id, t.first_offset) for t in answer.aborted_transactions] == [
        (identity[0], 1)
    ]
    assert kafka.fetch(0).aborted_transactions is None
    assert kafka.fetch(3, committed=True).aborted_transactions == []
    assert states(kafka) == [(b"plain", "committed"), (b"a", "aborted")]


def test_markers_come_later() -> None:
    """
    EndTxn is answered once the outcome is decided; until all markers are written, other requests
    get CONCURRENT_TRANSACTIONS, and so does the same EndTxn.
    """
    kafka = simulated_kafka(markers=Delay(5, 5))
    identity = kafka.begin("x")
    kafka.write("x", identity, b"a")
    assert kafka.end("x", identity, commit=True) == Code.NONE
    assert state(kafka, "x") == "PrepareCommit"
    concurrent = Code.CONCURRENT_TRANSACTIONS
    assert kafka.end("x", identity, commit=True) == concurrent
    assert kafka.end("x", identity, commit=False) == Code.INVALID_TXN_STATE
    assert kafka.join("x", identity) == concurrent
    assert kafka.init("x").error_code == concurrent
    assert kafka.fetch(0, committed=True).last_stable_offset == 0
    kafka.time.run(6)
    assert state(kafka, "x") == "CompleteCommit"
    assert kafka.end("x", identity, commit=True) == Code.NONE
    assert kafka.end("x", identity, commit=False) == Code.INVALID_TXN_STATE


def test_a_new_producer_fences_the_old_one(kafka: SimulatedKafka) -> None:
    """
    InitProducerId aborts the open transaction with a higher epoch, and a retry of InitProducerId
    gets the epoch after that.
    """
    old = kafka.begin("x")
    kafka.write("x", old, b"a")
    assert kafka.init("x").error_code == Code.CONCURRENT_TRANSACTIONS
    kafka.time.run(1)
    new = kafka.begin("x")
    assert new == (old[0], old[1] + 2)
    assert kafka.end("x", old, commit=True) == Code.PRODUCER_FENCED
    assert kafka.join("x", old) == Code.PRODUCER_FENCED
    assert kafka.write("x", old, b"b", sequence=1).error_code == Code.INVALID_PRODUCER_EPOCH
    assert states(kafka) == [(b"a", "aborted")]


def test_a_transaction_times_out(kafka: SimulatedKafka) -> None:
    """
    A transaction that is open for too long is aborted, and its producer is fenced.
    """
    identity = kafka.begin("x", timeout_ms=20_000)
    kafka.write("x", identity, b"a")
    kafka.time.run(19)
    assert state(kafka, "x") == "Ongoing"
    kafka.time.run(12)
    assert state(kafka, "x") == "CompleteAbort"
    assert kafka.end("x", identity, commit=True) == Code.PRODUCER_FENCED
    assert states(kafka) == [(b"a", "aborted")]


def test_a_timeout_has_a_limit(kafka: SimulatedKafka) -> None:
    """
    A transaction timeout above transaction.max.timeout.ms is refused.
    """
    assert kafka.init("x", 900_001).error_code == Code.INVALID_TRANSACTION_TIMEOUT


def test_an_unknown_id_or_producer_is_refused(kafka: SimulatedKafka) -> None:
    """
    Requests need the assigned producer id, and EndTxn needs an open transaction.
    """
    assert kafka.end("x", (5, 0), commit=True) == Code.INVALID_PRODUCER_ID_MAPPING
    response = kafka.init("x")
    identity = (response.producer_id, response.producer_epoch)
    assert kafka.end("x", (identity[0] + 1, 0), commit=True) == Code.INVALID_PRODUCER_ID_MAPPING
    assert kafka.end("x", identity, commit=True) == Code.INVALID_TXN_STATE
    assert kafka.join("x", identity, "missing") == Code.UNKNOWN_TOPIC_OR_PARTITION


def test_records_need_an_open_transaction(kafka: SimulatedKafka) -> None:
    """
    A leader appends transactional records only while the partition is in the transaction.
    """
    identity = kafka.begin("x")
    kafka.write("x", identity, b"a")
    kafka.end("x", identity, commit=True)
    kafka.time.run(1)
    assert kafka.write("x", identity, b"b", sequence=1).error_code == Code.INVALID_TXN_STATE
    assert states(kafka) == [(b"a", "committed")]


def test_newer_producers_join_by_writing(kafka: SimulatedKafka) -> None:
    """
    From version 12 on a Produce request adds its partition to the transaction (KIP-890).
    """
    response = kafka.init("x")
    result = kafka.produce(
        b"a",
        version=12,
        transactional_id="x",
        producer_id=response.producer_id,
        epoch=response.producer_epoch,
        transactional=True,
    )
    assert result.error_code == Code.NONE
    assert state(kafka, "x") == "Ongoing"


def test_newer_producers_get_an_epoch_for_each_transaction(kafka: SimulatedKafka) -> None:
    """
    EndTxn of version 5 bumps the epoch, so that a late request of the last transaction is refused.
    """
    old = kafka.begin("x")
    kafka.write("x", old, b"a")
    ended = kafka.end_and_bump("x", old, commit=True)
    new = (ended.producer_id, ended.producer_epoch)
    assert (ended.error_code, new) == (Code.NONE, (old[0], old[1] + 1))
    kafka.time.run(1)
    assert kafka.write("x", old, b"b", sequence=1).error_code == Code.INVALID_PRODUCER_EPOCH
    assert kafka.end_and_bump("x", new, commit=True).error_code == Code.INVALID_TXN_STATE
    assert states(kafka) == [(b"a", "committed")]


def test_a_newer_end_can_be_repeated() -> None:
    """
    EndTxn of version 5 may be repeated with the previous epoch, and is answered with the new one.
    """
    kafka = simulated_kafka(markers=Delay(5, 5))
    old = kafka.begin("x")
    kafka.write("x", old, b"a")
    ended = kafka.end_and_bump("x", old, commit=False)
    assert kafka.end_and_bump("x", old, commit=False).error_code == Code.CONCURRENT_TRANSACTIONS
    assert kafka.end_and_bump("x", old, commit=True).error_code == Code.INVALID_TXN_STATE
    kafka.time.run(6)
    repeated = kafka.end_and_bump("x", old, commit=False)
    assert (repeated.error_code, repeated.producer_epoch) == (Code.NONE, ended.producer_epoch)


def test_a_moved_coordinator_is_found_again(kafka: SimulatedKafka) -> None:
    """
    A coordinator that has been replaced refuses requests, and its successor finishes its work.
    """
    identity = kafka.begin("x")
    kafka.write("x", identity, b"a")
    old = kafka.cluster.coordinator("x")
    new = kafka.cluster.move_coordinator("x")
    assert new != old
    kafka.time.run(1)
    assert kafka.end("x", identity, commit=True, node=old) == Code.NOT_COORDINATOR
    assert kafka.end("x", identity, commit=True) == Code.NONE
    kafka.cluster.move_coordinator("x", old)
    kafka.time.run(1)
    assert state(kafka, "x") == "CompleteCommit"
    request = FindCoordinatorRequest(key_type=1, coordinator_keys=["x"])
    assert kafka.request(1, request, 4).coordinators[0].node_id == old


def test_a_coordinator_loads_its_ids() -> None:
    """
    A new coordinator refuses requests while it loads.
    """
    kafka = simulated_kafka(coordinator_load=Delay(5, 5), metadata=Delay(0, 0))
    assert kafka.init("x").error_code == Code.COORDINATOR_LOAD_IN_PROGRESS
    kafka.time.run(5)
    assert kafka.init("x").error_code == Code.NONE


def test_a_dead_coordinator_is_replaced(kafka: SimulatedKafka) -> None:
    """
    After a crash another broker coordinates the id, and ends the transaction.
    """
    identity = kafka.begin("x")
    kafka.cluster.crash(kafka.cluster.coordinator("x"))
    kafka.time.run(10)
    assert kafka.end("x", identity, commit=False) == Code.NONE


def test_an_isolated_coordinator_cannot_decide(kafka: SimulatedKafka) -> None:
    """
    A coordinator that is cut off still shows its state, but decides nothing.
    """
    identity = kafka.begin("x")
    stale = kafka.cluster.coordinator("x")
    kafka.cluster.isolate(stale)
    kafka.time.run(10)
    assert kafka.end("x", identity, commit=True) == Code.NONE
    kafka.time.run(1)
    error_code = kafka.end("x", identity, commit=False, node=stale)
    assert error_code == Code.COORDINATOR_NOT_AVAILABLE
    request = DescribeTransactionsRequest(transactional_ids=["x"])
    description = kafka.request(stale, request, 0).transaction_states[0]
    assert description.transaction_state == "Ongoing"
    assert state(kafka, "x") == "CompleteCommit"


def test_markers_wait_for_the_partition(kafka: SimulatedKafka) -> None:
    """
    A transaction completes only when all partitions have their marker.
    """
    identity = kafka.begin("x")
    kafka.write("x", identity, b"a")
    kafka.cluster.lag_replica("t", 0, kafka.cluster.replicas("t", 0)[1], 8)
    kafka.end("x", identity, commit=True)
    kafka.time.run(5)
    assert state(kafka, "x") == "PrepareCommit"
    assert kafka.fetch(0, committed=True).last_stable_offset == 0
    kafka.time.run(5)
    assert state(kafka, "x") == "CompleteCommit"


def test_transactions_are_described_and_listed(kafka: SimulatedKafka) -> None:
    """
    DescribeTransactions and ListTransactions show the states (KIP-664).
    """
    identity = kafka.begin("x")
    node = kafka.cluster.coordinator("x")
    request = DescribeTransactionsRequest(transactional_ids=["x"])
    description = kafka.request(node, request, 0).transaction_states[0]
    assert (description.transaction_state, description.producer_id) == ("Ongoing", identity[0])
    assert [(t.topic, list(t.partitions)) for t in description.topics] == [("t", [0])]

    def listed(*filters: str) -> list[str]:
        list_request = ListTransactionsRequest(state_filters=list(filters), producer_id_filters=[])
        return [t.transactional_id for t in kafka.request(node, list_request, 0).transaction_states]

    assert listed() == ["x"]
    assert listed("Ongoing") == ["x"]
    assert listed("Empty") == []


def test_an_unused_id_expires(kafka: SimulatedKafka) -> None:
    """
    An id that has expired is unknown, and starts again with another producer id.
    """
    first = kafka.init("x")
    kafka.cluster.expire_transactional_id("x")
    kafka.time.run(1)
    assert kafka.cluster.transaction("x") is None
    assert kafka.init("x").producer_id != first.producer_id


def test_a_replaced_coordinator_ends_nothing(kafka: SimulatedKafka) -> None:
    """
    A partition accepts no marker of a coordinator that another one has replaced (KIP-98).
    """
    identity = kafka.begin("x")
    kafka.write("x", identity, b"a")
    leader = kafka.cluster._leading("t", 0)
    leader.append(marker_batch(*identity, 0, commit=False, coordinator_epoch=99))
    end = kafka.cluster.log_end("t", 0)
    assert kafka.end("x", identity, commit=True) == Code.NONE
    kafka.time.run(5)

    assert kafka.cluster.log_end("t", 0) == end
    assert states(kafka) == [(b"a", "aborted")]
