"""
Requests that a broker answers with UNKNOWN_SERVER_ERROR, as it does after any unexpected failure.

Java's consumer retries them, and a failed read from remote storage has this code (KIP-405).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from tests.support import fetching, producing
from tests.support.stub_brokers import Behaviour, FetchAnswer, StubCluster

from pyspark_pykafka.engines.selection import fetch, metadata_backend
from pyspark_pykafka.errors import PykafkaError
from pyspark_pykafka.offsets import EARLIEST, LATEST, OffsetRange, TopicPartition
from pyspark_pykafka.settings import KafkaSettings

if TYPE_CHECKING:
    from pyspark_pykafka.engines.metadata_contract import MetadataBackend

ENGINES = pytest.mark.parametrize("engine", ["wire", "librdkafka"])
T0 = TopicPartition("t", 0)
FAILED = -1
END, FAILS_FROM = 1000, 200
SHORT_MS = 1_500
ALWAYS = 10**9


class Failing(Behaviour):
    """
    Answers some requests with an error; each attribute is the number of errors that are left.
    """

    def __init__(self, **attributes: Any) -> None:
        self.fetches = self.listings = self.epochs = self.descriptions = 0
        super().__init__(**{"high_watermark": END, **attributes})

    def _fails(self, kind: str) -> bool:
        left = getattr(self, kind)
        setattr(self, kind, max(left - 1, 0))
        return bool(left > 0)

    def fetch(self, node: int, topic: str, partition: int, offset: int) -> FetchAnswer:
        if offset >= FAILS_FROM and self._fails("fetches"):
            return FetchAnswer(FAILED, -1)
        return super().fetch(node, topic, partition, offset)

    def offsets(self, node: int, topic: str, partition: int, timestamp: int) -> tuple[int, int]:
        if self._fails("listings"):
            return FAILED, -1
        return super().offsets(node, topic, partition, timestamp)

    def leader_epoch(self, topic: str, partition: int) -> int:  # noqa: ARG002
        return 5

    def epoch_error(self, node: int, topic: str, partition: int) -> int:  # noqa: ARG002
        return FAILED if self._fails("epochs") else 0

    def topic_error(self, node: int, topic: str) -> int:  # noqa: ARG002
        return FAILED if self._fails("descriptions") else 0


def read(stubs: StubCluster, engine: str, requested: OffsetRange, **changes: Any) -> list[int]:
    """
    Return the offsets that a task reads.
    """
    settings = fetching.settings(
        stubs.bootstrap,
        engine,
        kafka=KafkaSettings.of({"bootstrap.servers": stubs.bootstrap, "log_level": "0"}),
        schema=fetching.VALUES,
        **changes,
    )
    return [
        offset for batch in fetch(requested, settings) for offset in batch["offset"].to_pylist()
    ]


def backend_of(stubs: StubCluster, engine: str, **kafka: str) -> MetadataBackend:
    """
    Return the driver's client of the brokers, which has described the topic.
    """
    settings = KafkaSettings.of({"bootstrap.servers": stubs.bootstrap, "log_level": "0", **kafka})
    backend = metadata_backend(settings, "read_uncommitted", engine)
    backend.describe_topics(["t"])
    return backend


@ENGINES
def test_a_fetch_is_retried(engine: str) -> None:
    """
    A read continues once the broker answers its fetches again.
    """
    with StubCluster(Failing(fetches=3)) as stubs:
        assert read(stubs, engine, OffsetRange(T0, 0, END)) == list(range(END))


@ENGINES
def test_a_fetch_that_always_fails_is_a_retriable_error(engine: str) -> None:
    """
    After pollTimeoutMs the read raises an error that names the code and the broker's log.
    """
    with StubCluster(Failing(fetches=ALWAYS)) as stubs:
        with pytest.raises(PykafkaError) as raised:
            read(stubs, engine, OffsetRange(T0, 0, END), poll_timeout_ms=SHORT_MS)
        requests = sum(stubs.stats()["requests"].values())

    assert raised.value.retriable
    assert re.search(r"\(UNKNOWN\).*the broker's own log", str(raised.value))
    assert f"within {SHORT_MS} ms" in str(raised.value)
    assert requests < 50


@ENGINES
def test_a_task_resolves_the_ends_of_its_range(engine: str) -> None:
    """
    A task that has to list the offsets of its range retries that.
    """
    with StubCluster(Failing(listings=2)) as stubs:
        assert read(stubs, engine, OffsetRange(T0, EARLIEST, LATEST)) == list(range(END))


@ENGINES
def test_a_plan_lists_offsets(engine: str) -> None:
    """
    A plan retries the listing of offsets.
    """
    with StubCluster(Failing()) as stubs:
        backend = backend_of(stubs, engine)
        stubs.set(listings=2)
        assert backend.log_ends([T0]).offsets == {T0: END}
        stubs.set(listings=1)
        assert backend.list_offsets({T0: EARLIEST}) == {T0: 0}


@ENGINES
def test_a_plan_whose_listing_always_fails(engine: str) -> None:
    """
    The plan ends at its timeout with a retriable error that names the code and the broker's log.
    """
    with StubCluster(Failing(listings=0)) as stubs:
        backend = backend_of(stubs, engine, **{"default.api.timeout.ms": "2000"})
        stubs.set(listings=ALWAYS)
        with pytest.raises(PykafkaError, match=r"\(UNKNOWN\).*the broker's own log") as raised:
            backend.log_ends([T0])

    assert raised.value.retriable


def test_the_check_of_a_log_is_retried() -> None:
    """
    The request for the end of a leader epoch is retried, by tasks and by plans (KIP-320).
    """
    with StubCluster(Failing(epochs=2)) as stubs:
        planned = OffsetRange(T0, 0, END, start_epoch=3, end_epoch=3)
        assert read(stubs, "wire", planned) == list(range(END))
        backend = backend_of(stubs, "wire")
        stubs.set(epochs=2)
        assert backend.offsets_for_leader_epochs({T0: 5}) == {T0: END}


@ENGINES
def test_metadata_is_retried(engine: str) -> None:
    """
    Metadata in which the topic has this error is requested again by tasks that read, and by
    writers. Java's clients do the same: they ignore the metadata that brokers send after a failure,
    since it names no brokers.
    """
    with StubCluster(Failing(descriptions=2)) as stubs:
        assert read(stubs, engine, OffsetRange(T0, 0, END)) == list(range(END))
    with StubCluster(Failing(descriptions=2)) as stubs:
        rows = producing.batch_of([])
        assert producing.write(stubs.bootstrap, [rows], "t", engine) == 0
