"""
Transactions behave the same on the simulated cluster and on a real broker.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaException, Producer
from tests.simulation.kafka.codes import Code
from tests.support.served_kafka import RawKafka, values, wire_values

from pyspark_pykafka.engines.transaction_contract import PreparedTransaction, TransactionSpec
from pyspark_pykafka.engines.wire.producer.producer import transaction_client, write_in_transaction
from pyspark_pykafka.engines.wire.transactions.transaction_errors import FencedError
from pyspark_pykafka.engines.wire.transactions.values import TransactionState
from pyspark_pykafka.settings import KafkaSettings
from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_pykafka.testing.client import KafkaAccess

SECONDS = 30.0
COMMITTED = {"isolation.level": "read_committed"}


@contextmanager
def producer(cluster: KafkaAccess, name: str) -> Iterator[Producer]:
    """
    Yield a transactional producer of librdkafka.
    """
    settings = {"bootstrap.servers": cluster.bootstrap, "transactional.id": name, "linger.ms": 0}
    client = Producer({**settings, "log_level": 0})
    client.init_transactions(SECONDS)
    yield client


def await_stable(raw: RawKafka) -> None:
    """
    Wait until no transaction of the partition is open.
    """

    def blocker() -> str | None:
        stable = raw.list_offset(committed=True).offset
        end = raw.list_offset().offset
        return None if stable == end else f"stable up to {stable} of {end}"

    wait_until(blocker, SECONDS)


def await_state(raw: RawKafka, name: str, state: str) -> None:
    def blocker() -> str | None:
        current = raw.describe(name).transaction_state
        return None if current == state else f"{name} is in {current}"

    wait_until(blocker, SECONDS)


def test_committed_and_aborted_transactions(
    cluster: KafkaAccess, topic: str, raw: RawKafka
) -> None:
    """
    Readers of committed records see whole transactions, with both clients.
    """
    with producer(cluster, topic) as client:
        for value, commit in ((b"a", True), (b"b", False), (b"c", True)):
            client.begin_transaction()
            client.produce(topic, value)
            assert client.flush(SECONDS) == 0
            end = client.commit_transaction if commit else client.abort_transaction
            end(SECONDS)
    await_stable(raw)
    assert values(cluster, topic, **COMMITTED) == wire_values(cluster, topic) == [b"a", b"c"]
    everything = [b"a", b"b", b"c"]
    assert wire_values(cluster, topic, "read_uncommitted") == everything
    assert values(cluster, topic, **{"isolation.level": "read_uncommitted"}) == everything


def test_a_second_producer_fences_the_first(
    cluster: KafkaAccess, topic: str, raw: RawKafka
) -> None:
    """
    A producer that starts with the same transactional id aborts the first one's transaction.
    """
    with producer(cluster, topic) as first:
        first.begin_transaction()
        first.produce(topic, b"lost")
        first.flush(SECONDS)
        with producer(cluster, topic) as second:
            second.begin_transaction()
            second.produce(topic, b"kept")
            second.commit_transaction(SECONDS)
        with pytest.raises(KafkaException) as error:
            first.commit_transaction(SECONDS)
    assert error.value.args[0].name() in {"_FENCED", "PRODUCER_FENCED"}
    await_stable(raw)
    assert values(cluster, topic, **COMMITTED) == [b"kept"]


def test_prepared_transactions_end(cluster: KafkaAccess, topic: str, raw: RawKafka) -> None:
    """
    The wire engine ends prepared transactions by their ids, and reads their outcome.
    """
    kafka = KafkaSettings.of({"bootstrap.servers": cluster.bootstrap})

    def prepared(name: str) -> PreparedTransaction:
        rows = pa.RecordBatch.from_pydict({"value": [name.encode()]})
        written = write_in_transaction(
            [rows], kafka, topic, TransactionSpec(f"{topic}-{name}", 60_000)
        )
        assert written.prepared is not None
        return written.prepared

    committed, aborted, fenced = (prepared(name) for name in ("committed", "aborted", "fenced"))
    with transaction_client(kafka) as transactions:
        transactions.end(committed, commit=True)
        transactions.end(committed, commit=True)
        transactions.end(aborted, commit=False)
        prepared("fenced")
        with pytest.raises(FencedError):
            transactions.end(fenced, commit=True)
        description = transactions.describe(f"{topic}-fenced")
        assert description is not None
        assert description.state is TransactionState.ONGOING
        transactions.end(description.prepared, commit=True)
    await_stable(raw)
    assert values(cluster, topic, **COMMITTED) == wire_values(cluster, topic)
    assert sorted(wire_values(cluster, topic)) == [b"committed", b"fenced"]


def test_states_are_refused_alike(raw: RawKafka, topic: str) -> None:
    """
    EndTxn and AddPartitionsToTxn respond in the same way in each state.
    """
    assert raw.end(topic, (999_999, 0), commit=True) == Code.INVALID_PRODUCER_ID_MAPPING
    first = raw.init(topic)
    identity = (first.producer_id, first.producer_epoch)
    assert raw.end(topic, identity, commit=True) == Code.INVALID_TXN_STATE
    assert raw.join(topic, identity, "missing") == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert raw.join(topic, identity) == Code.NONE
    assert raw.write(topic, identity, b"a").error_code == Code.NONE
    assert raw.fetch(0, committed=True).last_stable_offset == 0
    assert raw.describe(topic).transaction_state == "Ongoing"
    assert raw.end(topic, identity, commit=False) == Code.NONE
    await_state(raw, topic, "CompleteAbort")
    assert raw.end(topic, identity, commit=False) == Code.NONE
    assert raw.end(topic, identity, commit=True) == Code.INVALID_TXN_STATE
    assert raw.write(topic, identity, b"b", sequence=1).error_code == Code.INVALID_TXN_STATE
    (aborted,) = raw.fetch(0, committed=True).aborted_transactions
    assert (aborted.producer_id, aborted.first_offset) == (identity[0], 0)
    assert raw.fetch(2, committed=True).aborted_transactions == []


def test_fencing_is_alike(raw: RawKafka, topic: str) -> None:
    """
    InitProducerId aborts an open transaction with the next epoch, and then takes the one after it.
    """
    old = raw.begin(topic)
    raw.write(topic, old, b"a")
    assert raw.init(topic).error_code == Code.CONCURRENT_TRANSACTIONS
    await_state(raw, topic, "CompleteAbort")
    assert raw.describe(topic).producer_epoch == old[1] + 1
    new = raw.init(topic)
    assert (new.producer_id, new.producer_epoch) == (old[0], old[1] + 2)
    assert raw.end(topic, old, commit=True) == Code.PRODUCER_FENCED
    assert raw.join(topic, old) == Code.PRODUCER_FENCED
    assert raw.write(topic, old, b"b", sequence=1).error_code == Code.INVALID_PRODUCER_EPOCH


def test_timeouts_are_alike(raw: RawKafka, topic: str) -> None:
    """
    A transaction that has timed out is aborted with the next epoch, and a timeout has a maximum.
    """
    assert raw.init(topic, 900_001).error_code == Code.INVALID_TRANSACTION_TIMEOUT
    identity = raw.begin(topic, timeout_ms=1000)
    raw.write(topic, identity, b"a")
    await_state(raw, topic, "CompleteAbort")
    assert raw.describe(topic).producer_epoch == identity[1] + 1
    assert raw.end(topic, identity, commit=True) == Code.PRODUCER_FENCED


def test_joining_by_writing_is_alike(raw: RawKafka, topic: str) -> None:
    """
    A Produce request of version 12 adds its partition to the transaction (KIP-890).
    """
    response = raw.init(topic)
    identity = (response.producer_id, response.producer_epoch)
    fields: dict[str, Any] = {"producer_id": identity[0], "epoch": identity[1]}
    sent = {"transactional_id": topic, "transactional": True, **fields}

    # The leader verifies this with the coordinator, and returns a retriable error in the meantime.
    def blocker() -> str | None:
        code = raw.produce(b"a", version=11, **sent).error_code
        return None if code == Code.TRANSACTION_ABORTABLE else f"the leader returns {code}"

    wait_until(blocker, SECONDS)
    assert raw.produce(b"a", version=12, **sent).error_code == Code.NONE
    assert raw.describe(topic).transaction_state == "Ongoing"
    assert raw.end(topic, identity, commit=True) == Code.NONE


def test_raising_the_epoch_is_alike(raw: RawKafka, topic: str) -> None:
    """
    EndTxn of version 5 bumps the epoch; its repetition gets the same response (KIP-890).
    """
    response = raw.init(topic)
    old = (response.producer_id, response.producer_epoch)
    sent: dict[str, Any] = {"transactional_id": topic, "transactional": True, "version": 12}
    assert raw.produce(b"a", producer_id=old[0], epoch=old[1], **sent).error_code == Code.NONE
    raised = raw.end_and_bump(topic, old, commit=True)
    new = (raised.producer_id, raised.producer_epoch)
    assert (raised.error_code, new) == (Code.NONE, (old[0], old[1] + 1))
    await_state(raw, topic, "CompleteCommit")
    repeated = raw.end_and_bump(topic, old, commit=True)
    assert (repeated.error_code, repeated.producer_id, repeated.producer_epoch) == (Code.NONE, *new)
    assert raw.end_and_bump(topic, old, commit=False).error_code == Code.INVALID_TXN_STATE
    late = raw.produce(b"b", producer_id=old[0], epoch=old[1], sequence=1, **sent)
    assert late.error_code == Code.INVALID_PRODUCER_EPOCH
    assert raw.produce(b"c", producer_id=new[0], epoch=new[1], **sent).error_code == Code.NONE
    assert raw.end_and_bump(topic, new, commit=False).producer_epoch == new[1] + 1


def test_ending_nothing_is_alike(raw: RawKafka, topic: str) -> None:
    """
    Without a transaction, EndTxn of version 5 rejects a commit; an abort bumps the epoch.
    """
    response = raw.init(topic)
    identity = (response.producer_id, response.producer_epoch)
    assert raw.end_and_bump(topic, identity, commit=True).error_code == Code.INVALID_TXN_STATE
    raised = raw.end_and_bump(topic, identity, commit=False)
    assert (raised.error_code, raised.producer_epoch) == (Code.NONE, identity[1] + 1)
    await_state(raw, topic, "CompleteAbort")


def test_unknown_ids_are_described_alike(raw: RawKafka, topic: str) -> None:
    """
    DescribeTransactions returns TRANSACTIONAL_ID_NOT_FOUND for an id without a transaction.
    """
    raw.init(f"{topic}-another")
    assert raw.describe(topic).error_code == Code.TRANSACTIONAL_ID_NOT_FOUND
