"""
A ledger's client: the entries of commands, and reads while the leader moves, lags or is gone.
"""

from __future__ import annotations

import json
import struct
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.support.stub_brokers import Behaviour, FetchAnswer, StubCluster, record_batch

from pyspark_pykafka.engines.wire.network.cluster import Cluster
from pyspark_pykafka.engines.wire.transactions.transactions import Transactions
from pyspark_pykafka.errors import (
    ConcurrentWriteError,
    ExactlyOnceError,
    PykafkaError,
    TimeoutExceededError,
)
from pyspark_pykafka.settings import KafkaSettings
from pyspark_pykafka.settings.wire_config import wire_producer_config
from pyspark_pykafka.sink.ledger import Ledger
from pyspark_pykafka.sink.ledger_entries import Intent, Release, Withdrawal

if TYPE_CHECKING:
    from collections.abc import Iterator

TOPIC = "orders-ledger"
ENTRIES = 4
_PRODUCE, _FETCH = 0, 1
_RELEASE = json.dumps({"kind": "release", "query": "q"}).encode()


class FailingLedger(Behaviour):
    """
    A ledger of four entries that fails in one way for some seconds.
    """

    def __init__(self, failure: str, seconds: float) -> None:
        super().__init__(brokers=2, topics={TOPIC: 1}, high_watermark=ENTRIES)
        self.failure, self.seconds, self.start = failure, seconds, 0.0

    def _fails_with(self, failure: str) -> bool:
        self.start = self.start or time.time()
        return self.failure == failure and time.time() - self.start < self.seconds

    def topic_error(self, node: int, topic: str) -> int:  # noqa: ARG002
        return 3 if self._fails_with("unknown") else 0

    def topics_of(self, node: int) -> dict[str, int]:  # noqa: ARG002
        return {} if self._fails_with("unknown") else self.topics

    def offsets(
        self,
        node: int,  # noqa: ARG002
        topic: str,  # noqa: ARG002
        partition: int,  # noqa: ARG002
        timestamp: int,
    ) -> tuple[int, int]:
        if self._fails_with("not leader"):
            return 6, -1
        log_start = 3 if self._fails_with("deleted") else 0
        return 0, log_start if timestamp == -2 else ENTRIES

    def throttle_ms(self, node: int, api_key: int) -> int:  # noqa: ARG002
        return 3_600_000 if self._fails_with("throttled") and api_key == _FETCH else 0

    def fetch(self, node: int, topic: str, partition: int, offset: int) -> FetchAnswer:  # noqa: ARG002
        if self._fails_with("not leader"):
            return FetchAnswer(6, -1)
        if self._fails_with("lagging"):
            # A newly elected leader has all records, but its high watermark may lag behind.
            return FetchAnswer(0, 2)
        if self._fails_with("out of range") or (self._fails_with("deleted") and offset < 3):
            return FetchAnswer(1, -1)
        if offset >= ENTRIES:
            return FetchAnswer(0, ENTRIES)
        if self._fails_with("throttled"):
            return FetchAnswer(0, ENTRIES)
        return FetchAnswer(0, ENTRIES, record_batch(offset, [_RELEASE] * (ENTRIES - offset)))


@contextmanager
def ledger(failure: str, seconds: float, block_ms: int = 30_000) -> Iterator[Ledger]:
    """
    Yield a client of a ledger that fails in one way for some seconds.
    """
    with StubCluster(FailingLedger(failure, seconds)) as stubs:
        options = {"bootstrap.servers": stubs.all_brokers, "max.block.ms": str(block_ms)}
        config = wire_producer_config(KafkaSettings.of(options))
        cluster = Cluster(config.wire)
        try:
            yield Ledger(cluster, config, TOPIC)
        finally:
            cluster.close()


@contextmanager
def empty_ledger() -> Iterator[tuple[StubCluster, Ledger]]:
    """
    Yield a broker, and a client of an empty ledger.
    """
    with StubCluster(Behaviour(topics={TOPIC: 1}, logs={(TOPIC, 0): []})) as stubs:
        config = wire_producer_config(KafkaSettings.of({"bootstrap.servers": stubs.bootstrap}))
        cluster = Cluster(config.wire)
        try:
            yield stubs, Ledger(cluster, config, TOPIC)
        finally:
            cluster.close()


def producer_of(batch: bytes) -> tuple[int, int]:
    """
    Return the producer id and the base sequence of a record batch (magic 2).
    """
    producer_id, _, sequence = struct.unpack_from(">qhi", batch, 43)
    return producer_id, sequence


def test_entries_of_commands_have_a_producer_id() -> None:
    """
    Commands append with a producer id, so that a broker drops a late copy; drivers append without
    one, since copies of their entries do no harm.
    """
    with empty_ledger() as (stubs, ledger):
        ledger.append(Withdrawal("q", "w"))
        ledger.append_command(Release("q", 1, "a"), "release")
        ledger.append_command(Release("q", 2, "b"), "release")
        batches = stubs.get("logs")[TOPIC, 0]

    producers = [producer_of(batch) for batch in batches]
    assert producers[0][0] == -1
    assert [sequence for _, sequence in producers[1:]] == [0, 0]
    assert len({producer_id for producer_id, _ in producers}) == 3


class SlowAppends(Behaviour):
    """
    A broker that takes half a second for each append.
    """

    def delay(self, node: int, api_key: int) -> float:  # noqa: ARG002
        return 0.5 if api_key == _PRODUCE else 0.0


def test_a_client_is_usable_after_an_append_without_a_response() -> None:
    """
    A later request does not get the response to an append that has timed out.
    """
    with StubCluster(SlowAppends(topics={TOPIC: 1}, logs={(TOPIC, 0): []})) as stubs:
        config = wire_producer_config(KafkaSettings.of({"bootstrap.servers": stubs.bootstrap}))
        config = replace(config, delivery_seconds=0.1)
        cluster = Cluster(config.wire)
        transactions = Transactions(cluster, config)
        try:
            transactions.describe_all(["a"])
            with pytest.raises(TimeoutExceededError, match="kafka.delivery.timeout.ms"):
                Ledger(cluster, config, TOPIC).append(Withdrawal("q", "w"))
            assert transactions.describe_all(["a"]) == {"a": None}
        finally:
            cluster.close()


def test_a_command_that_was_overtaken_has_no_effect() -> None:
    """
    A release fails if a driver has appended an intent after the command had read the ledger.
    """
    with empty_ledger() as (_, ledger):
        ledger.append(Intent("q", 7, "w", 1, 1))
        with pytest.raises(
            ConcurrentWriteError, match="transactions release had no effect"
        ) as raised:
            ledger.append_command(Release("q", 0, "a"), "release")
        assert "stop the query, and run the command again" in str(raised.value)
        ledger.append_command(Release("q", ledger.high_watermark(), "b"), "release")


def test_a_search_continues_while_a_command_may_be_overtaken() -> None:
    """
    The ledger is read backwards until the entries show whether a release counts.
    """
    with empty_ledger() as (_, ledger):
        ledger.append(Intent("q", 7, "w", 1, 1))
        for write in "abcdefg":
            ledger.append(Withdrawal("q", write))
        ledger.append(Release("q", 0, "late"))
        entries = ledger.read_committed_back(0, 9, 8, window=2)

    assert [offset for offset, _ in entries] == list(range(9))


@pytest.mark.parametrize(
    ("failure", "seconds"),
    [("not leader", 2.0), ("lagging", 2.0), ("unknown", 4.0), ("out of range", 2.0)],
)
def test_reads_are_retried_while_the_leader_moves(failure: str, seconds: float) -> None:
    """
    Reads are retried for kafka.max.block.ms, without reporting data loss.
    """
    with ledger(failure, seconds) as reader:
        entries = reader.read_all(0, ENTRIES)

    assert len(entries) == ENTRIES


def test_a_throttled_ledger_takes_no_longer_than_max_block_ms() -> None:
    """
    A broker that throttles for an hour delays a read by kafka.max.block.ms at most.
    """
    with (
        ledger("throttled", 3_600, block_ms=2_000) as reader,
        pytest.raises(TimeoutExceededError, match=r"2000 ms \(kafka.max.block.ms\): .*throttles"),
    ):
        reader.read_all(0, ENTRIES)


def test_watermarks_are_retried() -> None:
    """
    Requests for the watermarks are retried as well while the leader moves.
    """
    with ledger("not leader", 1.0) as reader:
        assert reader.watermarks() == (0, ENTRIES)


@pytest.mark.parametrize("failure", ["not leader", "lagging"])
def test_an_outage_ends_in_a_timeout(failure: str) -> None:
    """
    The error is retriable, and names kafka.max.block.ms.
    """
    with ledger(failure, 1e9, block_ms=2_000) as reader, pytest.raises(PykafkaError) as raised:
        reader.read_all(0, ENTRIES)

    assert isinstance(raised.value, TimeoutExceededError)
    assert f"the ledger {TOPIC}-0 could not be read within 2000 ms (kafka.max.block.ms)" in str(
        raised.value
    )
    assert "kafkaConsumer.pollTimeoutMs" not in str(raised.value)


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        ("unknown", "no broker has known the ledger orders-ledger for 5000 ms"),
        ("deleted", "begins at offset 3, and had entries from 0 on"),
    ],
)
def test_a_lost_ledger_is_reported(failure: str, text: str) -> None:
    """
    The error is not retriable: the committed tasks can no longer be known.
    """
    with ledger(failure, 1e9, block_ms=5_000) as reader, pytest.raises(ExactlyOnceError) as raised:
        reader.read_all(0, ENTRIES)

    assert raised.value.condition == "EXACTLY_ONCE_LEDGER_LOST"
    assert text in str(raised.value)
    assert "pykafka transactions release" in str(raised.value)
