"""
The contract of every progress store, on real servers: its owner may write, and others may not.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import Event, Thread
from typing import TYPE_CHECKING

import pytest
from tests.support.memory_store import MemoryStore, Server

from pyspark_pykafka.engines.metadata import MetadataClient
from pyspark_pykafka.engines.selection import metadata_backend
from pyspark_pykafka.errors import ProgressError
from pyspark_pykafka.offsets import QueryIdentity, StreamOffset, TopicPartition
from pyspark_pykafka.options import ZooKeeperNodes
from pyspark_pykafka.progress.group_store import GroupStore
from pyspark_pykafka.progress.record import FailedAttempts, Owner, ProgressRecord
from pyspark_pykafka.progress.store import ClaimLostError
from pyspark_pykafka.progress.store_session import StoreSession
from pyspark_pykafka.progress.zookeeper_store import ZooKeeperStore
from pyspark_pykafka.retry import RetryPolicy
from pyspark_pykafka.settings import KafkaSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark_pykafka.progress.store import ProgressStore
    from pyspark_pykafka.testing import KafkaCluster, ZooKeeper
    from pyspark_pykafka.testing.plugin import TopicFactory

SESSION_MS = 3_000
ME, ALSO_ME, OTHER = Owner("q", "a", 0), Owner("q", "b", 0), Owner("r", "c", 0)


@dataclass
class StoreLocation:
    """
    One id in one kind of store. Each store object stands for one process.
    """

    topic: str
    make: Callable[[], ProgressStore]
    stores: list[ProgressStore]

    def store(self) -> ProgressStore:
        self.stores.append(self.make())
        return self.stores[-1]

    def tp(self, partition: int) -> TopicPartition:
        return TopicPartition(self.topic, partition)


@pytest.fixture(params=["memory", "consumerGroup", "zookeeper"])
def location(request: pytest.FixtureRequest, topic: TopicFactory) -> Iterator[StoreLocation]:
    """
    Return an unused id, for a topic of three partitions.
    """
    name = topic(3)
    make = _maker(request, name)
    location = StoreLocation(name, make, [])
    yield location
    for store in location.stores:
        store.close()


def _maker(request: pytest.FixtureRequest, name: str) -> Callable[[], ProgressStore]:
    if request.param == "memory":
        server = Server()
        return lambda: MemoryStore(server)
    cluster: KafkaCluster = request.getfixturevalue("kafka_cluster")
    if request.param == "consumerGroup":
        settings = {"bootstrap.servers": cluster.bootstrap, "session.timeout.ms": str(SESSION_MS)}
        kafka = KafkaSettings.of(settings)
        backend = metadata_backend(kafka, "read_uncommitted", "auto")
        client = MetadataClient(backend, RetryPolicy(3, 1.0))
        return lambda: GroupStore(kafka, name, client)
    zookeeper: ZooKeeper = request.getfixturevalue("zookeeper")
    nodes = ZooKeeperNodes(zookeeper.hosts, "/pykafka", name, SESSION_MS, None, "open")
    return lambda: ZooKeeperStore(nodes, lambda tps: dict.fromkeys(tps, ("b", 9092)))


def plain(record: ProgressRecord) -> ProgressRecord:
    """
    Return a record without the fields that only some stores keep.
    """
    return replace(record, broker=None)


def test_new_store_is_empty(location: StoreLocation) -> None:
    """
    A new store is empty for a reader and for the first owner, whose epoch is 1.
    """
    store = location.store()

    assert store.read() == {}
    claim = store.claim(ME, [location.topic])

    assert (claim.owner, claim.records) == (replace(ME, epoch=1), {})


def test_written_records_are_read(location: StoreLocation) -> None:
    """
    The writer, the next owner and a plain reader see the records, including new values.
    """
    store = location.store()
    owner = store.claim(ME, [location.topic]).owner
    record = ProgressRecord(5, owner, 1, "id")
    for offset in (3, 4):
        store.write({location.tp(0): replace(record, offset=offset), location.tp(2): record})
    failing = replace(record, failing=FailedAttempts(2, 3, 'a "cause"'))
    store.write({location.tp(1): failing})

    expected = {
        location.tp(0): replace(record, offset=4),
        location.tp(1): failing,
        location.tp(2): record,
    }
    assert store.read(["another"]) == {}
    assert set(store.read([location.topic, "another"])) == set(expected)
    readers = (store, location.store())
    for stored in (
        *(reader.read() for reader in readers),
        location.store().claim(ALSO_ME, [location.topic]).records,
    ):
        assert {tp: plain(record) for tp, record in stored.items()} == expected


def test_records_move_back_with_the_query(location: StoreLocation) -> None:
    """
    When a query goes back after an allowed truncation, the offsets in every store go back, too,
    including a group's committed offset.
    """
    session = StoreSession(location.store(), "a")
    for batch, offset in enumerate((1000, 600)):
        session.record(StreamOffset({location.tp(0): offset}, query=QueryIdentity("q", batch)))

    assert location.store().read()[location.tp(0)].offset == 600


def test_later_process_of_the_query_takes_over_at_once(location: StoreLocation) -> None:
    """
    The store itself rejects the earlier process, which may only have been slow.
    """
    old, new = location.store(), location.store()
    first = old.claim(ME, [location.topic]).owner
    old.write({location.tp(0): ProgressRecord(3, first)})

    second = new.claim(ALSO_ME, [location.topic]).owner
    new.write({location.tp(0): ProgressRecord(4, second)})

    with pytest.raises(ClaimLostError):
        old.write({location.tp(0): ProgressRecord(9, first)})
    with pytest.raises(ProgressError, match=r"written by query q \(process b, epoch 2\) now"):
        old.claim(first, [location.topic])
    assert location.store().read()[location.tp(0)].offset == 4
    new.write({location.tp(0): ProgressRecord(5, second)})


def test_replaced_process_is_rejected_though_the_records_are_gone(
    location: StoreLocation,
) -> None:
    """
    If the records were deleted while a process was frozen, its successor begins with the first
    epoch again, but keeps the store when the frozen process resumes.
    """
    former, old = location.store(), location.store()
    first = former.claim(ALSO_ME, [location.topic]).owner
    former.write({location.tp(0): ProgressRecord(2, first)})
    frozen = old.claim(ME, [location.topic]).owner
    old.write({location.tp(0): ProgressRecord(3, frozen)})
    old.close()
    location.store().delete_records()
    new = location.store()
    later = new.claim(ALSO_ME, [location.topic]).owner

    with pytest.raises(ProgressError, match=r"PROGRESS_FENCED"):
        old.claim(frozen, [location.topic])
    new.write({location.tp(0): ProgressRecord(4, later)})


def test_another_query_is_rejected_while_the_owner_is_alive(location: StoreLocation) -> None:
    """
    The error names the owner, which is not disturbed by the attempt.
    """
    store = location.store()
    owner = store.claim(ME, [location.topic]).owner

    with (
        _kept_alive(store),
        pytest.raises(ProgressError, match=r"(?s)PROGRESS_OWNED.*\bq\b"),
    ):
        location.store().claim(OTHER, [location.topic])

    store.write({location.tp(0): ProgressRecord(3, owner)})


def test_another_query_continues_after_the_owner_has_ended(location: StoreLocation) -> None:
    """
    Once the owner has closed the store, another query claims it, with the next epoch.
    """
    store = location.store()
    owner = store.claim(ME, [location.topic]).owner
    store.write({location.tp(0): ProgressRecord(3, owner)})
    store.close()

    claim = location.store().claim(OTHER, [location.topic])

    assert claim.owner.epoch == 2
    assert claim.records[location.tp(0)].offset == 3


def test_owner_can_claim_again(location: StoreLocation) -> None:
    """
    After a lost session without another owner, the same process claims again and continues.
    """
    store = location.store()
    owner = store.claim(ME, [location.topic]).owner
    store.write({location.tp(0): ProgressRecord(3, owner)})

    second_claim = store.claim(owner, [location.topic])
    store.write({location.tp(0): ProgressRecord(4, second_claim.owner)})

    assert second_claim.owner.epoch > owner.epoch
    assert store.read()[location.tp(0)].offset == 4


def test_records_are_deleted(location: StoreLocation) -> None:
    """
    Once there is no owner, all records are deleted, and the next owner starts with an empty store.
    """
    store = location.store()
    owner = store.claim(ME, [location.topic]).owner
    store.write(
        {location.tp(0): ProgressRecord(3, owner), location.tp(2): ProgressRecord(4, owner)}
    )
    store.close()

    location.store().delete_records()

    other_claim = location.store().claim(OTHER, [location.topic])
    assert other_claim.records == {}


def test_records_in_use_are_not_deleted(location: StoreLocation) -> None:
    """
    The error names the owner, and its records stay.
    """
    store = location.store()
    owner = store.claim(ME, [location.topic]).owner
    store.write({location.tp(0): ProgressRecord(3, owner)})

    with (
        _kept_alive(store),
        pytest.raises(ProgressError, match=r"(?s)PROGRESS_OWNED.*\bq\b"),
    ):
        location.store().delete_records()

    assert store.read()[location.tp(0)].offset == 3


def test_close_is_idempotent(location: StoreLocation) -> None:
    """
    Closing twice, or without a claim, has no effect.
    """
    store = location.store()
    store.close()
    store.claim(ME, [location.topic])
    store.close()
    store.close()


@contextmanager
def _kept_alive(store: ProgressStore) -> Iterator[None]:
    """
    Keep a store's claim alive, as the recorder's thread does every second.
    """
    over = Event()

    def keep_alive() -> None:
        while not over.wait(0.5):
            store.keep_alive()

    thread = Thread(target=keep_alive)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
