"""
The simulated cluster and a real broker behave alike: the same tests run with both.
"""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import OffsetSpec
from tests.simulation.kafka.codes import Code
from tests.support import fetching
from tests.support.kafka_requests import EARLIEST, LATEST, batch
from tests.support.producing import write
from tests.support.record_batches import CODECS, LZ4
from tests.support.served_kafka import RawKafka, SimulatedAccess

from pyspark_pykafka.engines.metadata import MetadataClient
from pyspark_pykafka.engines.selection import fetch, metadata_backend
from pyspark_pykafka.engines.transaction_contract import PreparedTransaction, Transaction
from pyspark_pykafka.engines.wire.producer.producer import transaction_client, write_prepared
from pyspark_pykafka.engines.wire.transactions.transaction_errors import FencedError
from pyspark_pykafka.engines.wire.transactions.values import TransactionState
from pyspark_pykafka.offsets import OffsetRange
from pyspark_pykafka.offsets import TopicPartition as Tp
from pyspark_pykafka.progress.group_store import GroupStore
from pyspark_pykafka.progress.record import Owner
from pyspark_pykafka.progress.record import Record as Progress
from pyspark_pykafka.progress.store import ClaimLostError
from pyspark_pykafka.retry import RetryPolicy
from pyspark_pykafka.settings import KafkaSettings
from pyspark_pykafka.testing import Record
from pyspark_pykafka.testing.plugin import unique_name
from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark_pykafka.testing.client import KafkaAccess

SECONDS = 30.0
COMMITTED = {"isolation.level": "read_committed"}
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
    found: KafkaAccess = request.getfixturevalue(name)
    return found


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


def values(cluster: KafkaAccess, topic: str, **config: str) -> list[bytes | None]:
    """
    Return what librdkafka reads.
    """
    return [record.value for record in cluster.consume(topic, config)]


def wire_values(cluster: KafkaAccess, topic: str, isolation: str = "read_committed") -> list[bytes]:
    """
    Return what the wire engine reads.
    """
    settings = fetching.settings(
        cluster.bootstrap, "wire", schema=fetching.VALUES, isolation_level=isolation
    )
    wanted = OffsetRange(Tp(topic, 0), EARLIEST, LATEST)
    return [value for rows in fetch(wanted, settings) for value in rows["value"].to_pylist()]


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


# --- Records --------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compressed_records_come_back(cluster: KafkaAccess, topic: str, codec: str) -> None:
    """
    Both clients read what librdkafka has written, with any compression.
    """
    written = [b"%d" % number * 20 for number in range(200)]
    config = {"compression.type": codec, "enable.idempotence": True}
    cluster.produce(topic, [Record(value) for value in written], config)
    assert values(cluster, topic) == written
    assert wire_values(cluster, topic) == written


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_the_wire_engine_writes(cluster: KafkaAccess, topic: str, codec: str) -> None:
    """
    Librdkafka reads what the wire engine has written.
    """
    rows = pa.RecordBatch.from_pydict({"value": [b"%d" % number for number in range(100)]})
    assert write(cluster.bootstrap, [rows], topic, compression_type=codec) == 100
    assert values(cluster, topic) == rows["value"].to_pylist()


# Kafka reads no LZ4 frames as those of `record_batches`; what clients send is tested above.
@pytest.mark.parametrize("codec", sorted({*CODECS} - {LZ4}))
def test_a_batch_is_returned_byte_by_byte(raw: RawKafka, codec: int) -> None:
    """
    A stored batch differs from what was sent in its base offset and leader epoch only.
    """
    raw.produce(b"before")
    sent = batch(b"a", b"b", codec=codec, now=raw.now())
    assert raw.produce(data=sent).base_offset == 1
    found = bytes(raw.fetch(1).records)
    assert found[:8] == (1).to_bytes(8, "big")
    assert found[8:12] + found[16:] == sent[8:12] + sent[16:]


def test_batches_are_refused_alike(raw: RawKafka) -> None:
    """
    A wrong checksum, two batches in a request, and a missing topic have their own errors.
    """
    damaged = bytearray(batch(b"a", now=raw.now()))
    damaged[-1] ^= 1
    assert raw.produce(data=bytes(damaged)).error_code == Code.CORRUPT_MESSAGE
    two = batch(b"a", now=raw.now()) + batch(b"b", now=raw.now())
    assert raw.produce(data=two).error_code == Code.INVALID_RECORD
    future = batch(b"a", now=raw.now() + 2 * 3600)
    assert raw.produce(data=future).error_code == Code.INVALID_TIMESTAMP
    raw.topic = "missing"
    assert raw.produce(b"a").error_code == Code.UNKNOWN_TOPIC_OR_PARTITION


def test_sequences_are_checked_alike(raw: RawKafka) -> None:
    """
    Duplicates get the first offset; gaps and old epochs are refused.
    """
    producer_id = raw.init(None).producer_id
    results = [
        raw.produce(b"a", b"b", producer_id=producer_id),
        raw.produce(b"c", producer_id=producer_id, sequence=2),
        raw.produce(b"a", b"b", producer_id=producer_id),
        raw.produce(b"e", producer_id=producer_id, sequence=4),
        raw.produce(b"d", producer_id=producer_id, epoch=1, sequence=3),
        raw.produce(b"d", producer_id=producer_id, epoch=1),
        raw.produce(b"e", producer_id=producer_id, sequence=3),
    ]
    assert [(result.error_code, result.base_offset) for result in results] == [
        (Code.NONE, 0),
        (Code.NONE, 2),
        (Code.NONE, 0),
        (Code.OUT_OF_ORDER_SEQUENCE_NUMBER, -1),
        (Code.OUT_OF_ORDER_SEQUENCE_NUMBER, -1),
        (Code.NONE, 3),
        (Code.INVALID_PRODUCER_EPOCH, -1),
    ]


def test_old_duplicates_are_refused_alike(raw: RawKafka) -> None:
    """
    Brokers remember the last five batches of a producer.
    """
    producer_id = raw.init(None).producer_id
    for sequence in range(6):
        raw.produce(b"a", producer_id=producer_id, sequence=sequence)
    results = [raw.produce(b"a", producer_id=producer_id, sequence=n) for n in (0, 1)]
    assert [(result.error_code, result.base_offset) for result in results] == [
        (Code.OUT_OF_ORDER_SEQUENCE_NUMBER, -1),
        (Code.NONE, 1),
    ]


def test_reads_are_limited_alike(raw: RawKafka) -> None:
    """
    The first batch is whole and a later one cut; offsets may be out of range.
    """
    raw.produce(b"a" * 100)
    raw.produce(b"b" * 100)
    whole = len(raw.fetch(1).records)
    assert len(raw.fetch(0, max_bytes=10).records) == whole
    assert len(raw.fetch(0, max_bytes=whole + 7).records) == whole + 7
    assert len(raw.fetch(0).records) == 2 * whole
    assert raw.fetch(2).error_code == Code.NONE
    beyond = raw.fetch(3)
    assert (beyond.error_code, beyond.high_watermark) == (Code.OFFSET_OUT_OF_RANGE, -1)
    assert raw.fetch(0, epoch=7).error_code == Code.UNKNOWN_LEADER_EPOCH
    wrong = "00000000-0000-0000-0000-000000000001"
    assert raw.fetch(0, version=13, topic_id=wrong).error_code == Code.UNKNOWN_TOPIC_ID
    raw.topic = "missing"
    assert raw.fetch(0).error_code == Code.UNKNOWN_TOPIC_OR_PARTITION


def test_deleted_records_are_out_of_range_alike(
    raw: RawKafka, cluster: KafkaAccess, topic: str
) -> None:
    """
    DeleteRecords moves the start of the log, also into a batch.
    """
    raw.produce(b"a", b"b", b"c")
    admin = cluster.admin()
    futures = admin.delete_records([TopicPartition(topic, 0, 1)])
    assert next(iter(futures.values())).result(SECONDS).low_watermark == 1
    assert raw.fetch(0).error_code == Code.OFFSET_OUT_OF_RANGE
    assert raw.fetch(1).log_start_offset == 1
    assert raw.list_offset(EARLIEST).offset == 1
    assert wire_values(cluster, topic) == [b"b", b"c"]


def test_offsets_are_listed_alike(raw: RawKafka, cluster: KafkaAccess, topic: str) -> None:
    """
    ListOffsets finds the ends, times and the highest timestamp.
    """
    now = int(raw.now())
    for seconds in (10, 30, 20):
        raw.produce(data=batch(b"a", now=now - seconds))
    wanted = [LATEST, EARLIEST, -3, (now - 25) * 1000, now * 1000 + 1]
    found = [raw.list_offset(time) for time in wanted]
    assert [(each.error_code, each.offset, each.leader_epoch) for each in found] == [
        (Code.NONE, 3, 0),
        (Code.NONE, 0, 0),
        (Code.NONE, 0, 0),
        (Code.NONE, 0, 0),
        (Code.NONE, -1, -1),
    ]
    assert [each.timestamp for each in found] == [-1, -1, *[(now - 10) * 1000] * 2, -1]
    assert raw.list_offset(epoch=3).error_code == Code.UNKNOWN_LEADER_EPOCH
    position = TopicPartition(topic, 0)
    # The client must outlive its futures.
    admin = cluster.admin()
    listed = admin.list_offsets({position: OffsetSpec.latest()})
    assert listed[position].result(SECONDS).offset == 3


def test_epochs_end_alike(raw: RawKafka) -> None:
    """
    OffsetForLeaderEpoch knows the present epoch, and none after it.
    """
    raw.produce(b"a", b"b")
    found = [raw.epoch_end(epoch) for epoch in (0, 1)]
    assert [(each.error_code, each.leader_epoch, each.end_offset) for each in found] == [
        (Code.NONE, 0, 2),
        (Code.NONE, -1, -1),
    ]


def test_offsets_are_committed(cluster: KafkaAccess, topic: str) -> None:
    """
    A committed offset comes back with its metadata, also to another client.
    """
    config = group_config(cluster, topic)
    with closing(Consumer(config)) as first:
        first.commit(offsets=[TopicPartition(topic, 0, 7, metadata="seven")], asynchronous=False)
    with closing(Consumer(config)) as second:
        (found,) = second.committed([TopicPartition(topic, 0)], SECONDS)
    assert (found.offset, found.metadata) == (7, "seven")


def group_config(cluster: KafkaAccess, group: str, **settings: Any) -> dict[str, Any]:
    """
    Return the settings of a consumer group's member; keywords have underscores for dots.
    """
    return {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": group,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "log_level": 0,
        **{name.replace("_", "."): value for name, value in settings.items()},
    }


def poll_until(consumer: Consumer, blocker: Callable[[list[bytes]], str | None]) -> None:
    """
    Read values until there is no blocker.
    """
    found: list[bytes] = []

    def poll() -> str | None:
        message = consumer.poll(0.2)
        if message is not None:
            assert message.error() is None
            found.append(message.value())
        return blocker(found)

    wait_until(poll, SECONDS)


def test_members_share_partitions(cluster: KafkaAccess, request: pytest.FixtureRequest) -> None:
    """
    A second member gets half of the partitions, and the first one all again when it has left.
    """
    name = cluster.create_topic(unique_name(request.node.name), 2)
    config = group_config(cluster, name)

    def owns(consumer: Consumer, partitions: int) -> str | None:
        owned = len(consumer.assignment())
        return None if owned == partitions else f"{owned} instead of {partitions}"

    with closing(Consumer(config)) as first:
        first.subscribe([name])
        poll_until(first, lambda _: owns(first, 2))
        with closing(Consumer(config)) as second:
            second.subscribe([name])

            def shared(_: list[bytes]) -> str | None:
                second.poll(0.05)
                return owns(first, 1) or owns(second, 1)

            poll_until(first, shared)
        poll_until(first, lambda _: owns(first, 2))


def test_a_member_goes_on_where_the_last_one_ended(cluster: KafkaAccess, topic: str) -> None:
    """
    A member reads from the offset that the group has committed.
    """
    cluster.produce(topic, [Record(b"a"), Record(b"b")])
    for expected in (b"a", b"b"):
        with closing(Consumer(group_config(cluster, topic))) as consumer:
            consumer.subscribe([topic])
            poll_until(consumer, lambda found: None if found else "no record")
            position = consumer.position([TopicPartition(topic, 0)])[0].offset
            assert position >= 1
            offset = 1 if expected == b"a" else 2
            consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    with closing(Consumer(group_config(cluster, topic))) as consumer:
        assert consumer.committed([TopicPartition(topic, 0)], SECONDS)[0].offset == 2


def test_groups_are_described_and_deleted(cluster: KafkaAccess, topic: str) -> None:
    """
    A group with a member cannot be deleted, and one without can; its offsets go with it.
    """
    admin = cluster.admin()
    position = TopicPartition(topic, 0, 5)
    with closing(Consumer(group_config(cluster, topic, group_instance_id="only"))) as consumer:
        consumer.subscribe([topic])
        poll_until(consumer, lambda _: None if consumer.assignment() else "no assignment")
        consumer.commit(offsets=[position], asynchronous=False)
        described = admin.describe_consumer_groups([topic])[topic].result(SECONDS)
        assert described.state.name == "STABLE"
        assert [member.group_instance_id for member in described.members] == ["only"]
        with pytest.raises(KafkaException) as refused:
            admin.delete_consumer_groups([topic])[topic].result(SECONDS)
        assert refused.value.args[0].name() == "NON_EMPTY_GROUP"
    with closing(Consumer(group_config(cluster, topic))) as outsider:
        with pytest.raises(KafkaException) as refused:
            outsider.commit(offsets=[position], asynchronous=False)
        assert refused.value.args[0].name() == "UNKNOWN_MEMBER_ID"


def test_a_dead_member_is_missed(cluster: KafkaAccess, topic: str) -> None:
    """
    A static member that has closed stays in the group until its session expires, and its group can
    then be deleted.
    """
    admin = cluster.admin()
    config = group_config(cluster, topic, group_instance_id="only", session_timeout_ms=1500)
    with closing(Consumer(config)) as consumer:
        consumer.subscribe([topic])
        poll_until(consumer, lambda _: None if consumer.assignment() else "no assignment")
    described = admin.describe_consumer_groups([topic])[topic].result(SECONDS)
    assert len(described.members) == 1

    def blocker() -> str | None:
        found = admin.describe_consumer_groups([topic])[topic].result(SECONDS)
        return f"{len(found.members)} members" if found.members else None

    wait_until(blocker, SECONDS)
    admin.delete_consumer_groups([topic])[topic].result(SECONDS)


def test_the_progress_store_works(cluster: KafkaAccess, topic: str) -> None:
    """
    The connector's group store takes a group over from a process that is still alive, which loses
    its claim, and deletes it at last.
    """
    kafka = KafkaSettings.of({"bootstrap.servers": cluster.bootstrap, "session.timeout.ms": "1500"})
    metadata = MetadataClient(
        metadata_backend(kafka, "read_uncommitted", "auto"), RetryPolicy(3, 1.0)
    )
    old, new = (GroupStore(kafka, f"{topic}-group", metadata) for _ in range(2))
    with closing(old), closing(new):
        first = old.claim(Owner("q", "a", 0), [topic]).owner
        old.write({Tp(topic, 0): Progress(3, first)})
        claim = new.claim(Owner("q", "b", 0), [topic])
        assert claim.records[Tp(topic, 0)].offset == 3
        new.write({Tp(topic, 0): Progress(4, claim.owner)})
        with pytest.raises(ClaimLostError):
            old.write({Tp(topic, 0): Progress(9, first)})
        assert new.read([topic])[Tp(topic, 0)].offset == 4
        new.delete_records()
        assert new.read([topic]) == {}


# --- Transactions ---------------------------------------------------------------------------------


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


def test_a_second_producer_fences_the_first(cluster: KafkaAccess, topic: str) -> None:
    """
    A producer that starts with the same transactional id ends the first one's transaction.
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
    assert values(cluster, topic, **COMMITTED) == [b"kept"]


def test_prepared_transactions_end(cluster: KafkaAccess, topic: str, raw: RawKafka) -> None:
    """
    The wire engine ends prepared transactions by their ids, and learns what became of them.
    """
    kafka = KafkaSettings.of({"bootstrap.servers": cluster.bootstrap})

    def prepared(name: str) -> PreparedTransaction:
        rows = pa.RecordBatch.from_pydict({"value": [name.encode()]})
        written = write_prepared([rows], kafka, topic, Transaction(f"{topic}-{name}", 60_000))
        assert written.prepared is not None
        return written.prepared

    kept, left, fenced = (prepared(name) for name in ("kept", "left", "fenced"))
    with transaction_client(kafka) as transactions:
        transactions.end(kept, commit=True)
        transactions.end(kept, commit=True)
        transactions.end(left, commit=False)
        prepared("fenced")
        with pytest.raises(FencedError):
            transactions.end(fenced, commit=True)
        found = transactions.describe(f"{topic}-fenced")
        assert found is not None
        assert found.state is TransactionState.ONGOING
        transactions.end(found.prepared, commit=True)
    await_stable(raw)
    assert values(cluster, topic, **COMMITTED) == wire_values(cluster, topic)
    assert sorted(wire_values(cluster, topic)) == [b"fenced", b"kept"]


def test_states_are_refused_alike(raw: RawKafka, topic: str) -> None:
    """
    EndTxn and AddPartitionsToTxn answer alike in each state.
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
    assert raw.produce(b"a", version=11, **sent).error_code == Code.TRANSACTION_ABORTABLE
    assert raw.produce(b"a", version=12, **sent).error_code == Code.NONE
    assert raw.describe(topic).transaction_state == "Ongoing"
    assert raw.end(topic, identity, commit=True) == Code.NONE


def test_unknown_ids_are_described_alike(raw: RawKafka, topic: str) -> None:
    """
    DescribeTransactions answers TRANSACTIONAL_ID_NOT_FOUND.
    """
    raw.init(f"{topic}-another")
    assert raw.describe(topic).error_code == Code.TRANSACTIONAL_ID_NOT_FOUND


def await_state(raw: RawKafka, name: str, state: str) -> None:
    def blocker() -> str | None:
        found = raw.describe(name).transaction_state
        return None if found == state else f"{name} is in {found}"

    wait_until(blocker, SECONDS)
