"""
The final progress of a query, recorded from Spark's events.
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from tests.support.memory_cluster import Cluster
from tests.support.memory_store import MemoryStore, Server
from tests.support.progress_events import progress

from pyspark_pykafka.errors import BrokerUnavailableError
from pyspark_pykafka.offsets import QueryIdentity, StreamOffset, TopicPartition
from pyspark_pykafka.options import parse_stream_source
from pyspark_pykafka.progress import listener
from pyspark_pykafka.progress.listener import ProgressListener
from pyspark_pykafka.progress.record import Owner, ProgressRecord
from pyspark_pykafka.progress.store import ClaimLostError, NoResponseError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyspark.sql.streaming.listener import (
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

    from pyspark_pykafka.errors import PykafkaError
    from pyspark_pykafka.offsets import Assignment
    from pyspark_pykafka.options import SourceOptions
    from pyspark_pykafka.progress.store import StoreClaim

OPTIONS = {
    "kafka.bootstrap.servers": "broker:9092",
    "subscribe": "flights",
    "progressStore": "consumerGroup",
    "kafka.group.id": "flights-to-lake",
}
TP = TopicPartition("flights", 0)
CLUSTERS = ("a:1", "b:1")
STORE = parse_stream_source(OPTIONS).progress_store.name


@dataclass
class Site:
    """
    A Kafka cluster in memory, and the progress store beside it.
    """

    cluster: Cluster = field(default_factory=Cluster)
    server: Server = field(default_factory=Server)

    @property
    def offsets(self) -> dict[TopicPartition, int]:
        return {tp: record.offset for tp, record in self.server.records.items()}


@pytest.fixture
def sites(monkeypatch: pytest.MonkeyPatch) -> defaultdict[str, Site]:
    """
    Return the sites by ``kafka.bootstrap.servers``; each has a topic of two partitions.
    """

    def make_site() -> Site:
        site = Site()
        site.cluster.create_topic("flights", 100, 100)
        site.cluster.ids["flights"] = f"id {len(new_sites)}"
        return site

    def site_of(options: SourceOptions) -> Site:
        return new_sites[options.kafka.get("bootstrap.servers", "")]

    def existing(options: SourceOptions, topics: Iterable[str]) -> Assignment:
        return site_of(options).cluster.existing(topics)

    new_sites: defaultdict[str, Site] = defaultdict(make_site)
    monkeypatch.setattr(
        listener, "make_progress_store", lambda options: MemoryStore(site_of(options).server)
    )
    monkeypatch.setattr(listener, "existing_topics", existing)
    return new_sites


def progress_event(report: str) -> QueryProgressEvent:
    """
    Return an event as clients of Spark Connect 4.0 and 4.1 show it, with offsets as Python's text.
    """
    document = json.loads(report)
    sources = [
        SimpleNamespace(endOffset=str(source["endOffset"])) for source in document["sources"]
    ]
    event = SimpleNamespace(
        progress=SimpleNamespace(id=document["id"], json=report, sources=sources)
    )
    return cast("QueryProgressEvent", event)


def terminated(
    query_id: str, exception: str | None = None, run: str = "run 1"
) -> QueryTerminatedEvent:
    """
    Return the event of a query's end.
    """
    event = SimpleNamespace(id=query_id, runId=run, exception=exception)
    return cast("QueryTerminatedEvent", event)


def started(query_id: str, run: str) -> QueryStartedEvent:
    """
    Return the event of a query's start.
    """
    return cast("QueryStartedEvent", SimpleNamespace(id=query_id, runId=run))


def end_offset(
    offset: int, store: str = STORE, topic_id: str | None = None, query: str = "query"
) -> dict[str, object]:
    """
    Return the offset document of a micro-batch that ended at this offset.
    """
    ids = {} if topic_id is None else {"flights": topic_id}
    return StreamOffset({TP: offset}, ids, query=QueryIdentity(query, 3, store)).to_json()


def test_last_batch_is_recorded_when_the_query_ends(sites: defaultdict[str, Site]) -> None:
    """
    The listener records the last end offsets, even if the client shows offsets as Python's text.
    """
    recording = ProgressListener(OPTIONS)

    recording.onQueryProgress(progress_event(progress(end_offset(7))))
    recording.onQueryProgress(progress_event(progress(end_offset(40))))
    recording.onQueryTerminated(terminated("q"))

    assert sites["broker:9092"].offsets == {TP: 40}


class _LosingStore(MemoryStore):
    """
    A store whose claim is lost at its first write; ``on_loss`` is called first.
    """

    def __init__(self, server: Server, on_loss: Callable[[], object]) -> None:
        super().__init__(server)
        self._on_loss: Callable[[], object] | None = on_loss

    def write(self, records: Mapping[TopicPartition, ProgressRecord]) -> None:
        on_loss, self._on_loss = self._on_loss, None
        if on_loss is not None:
            on_loss()
            msg = "no response"
            raise NoResponseError(msg)
        super().write(records)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_lost_claim(
    sites: defaultdict[str, Site],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    *,
    is_restarted: bool,
) -> None:
    """
    If a write has no response, the listener claims the store again. If a process of the query has
    claimed it by then, the listener records nothing: the query is running again, and records its
    progress itself.
    """
    server = sites["broker:9092"].server

    def restart() -> None:
        if is_restarted:
            MemoryStore(server).claim(Owner("query", "next process", 0), ["flights"])

    monkeypatch.setattr(listener, "make_progress_store", lambda _: _LosingStore(server, restart))
    recording = ProgressListener(OPTIONS)
    recording.onQueryProgress(progress_event(progress(end_offset(40))))
    with caplog.at_level(logging.INFO, "pyspark_pykafka"):
        recording.onQueryTerminated(terminated("q"))

    assert sites["broker:9092"].offsets == ({} if is_restarted else {TP: 40})
    restarts = [message for message in caplog.messages if "has been restarted" in message]
    assert bool(restarts) is is_restarted
    assert all(record.levelno == logging.INFO for record in caplog.records)


class _OvertakenStore(MemoryStore):
    """
    A store whose first claim fails with an error; ``on_failure`` is called first.
    """

    def __init__(
        self, server: Server, error: PykafkaError, on_failure: Callable[[], object]
    ) -> None:
        super().__init__(server)
        self._error: PykafkaError | None = error
        self._on_failure = on_failure

    def claim(self, owner: Owner, topics: Iterable[str]) -> StoreClaim:
        error, self._error = self._error, None
        if error is not None:
            self._on_failure()
            raise error
        return super().claim(owner, topics)


@pytest.mark.parametrize(
    "error", [ClaimLostError("fenced"), BrokerUnavailableError("not now")], ids=type
)
def test_a_restart_during_the_first_claim(
    sites: defaultdict[str, Site],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: PykafkaError,
) -> None:
    """
    If the query is restarted while the listener makes its first claim, the listener does not claim
    the store again, which would replace the process of the query.
    """
    server = sites["broker:9092"].server
    recording = ProgressListener(OPTIONS)

    def restart() -> None:
        recording.onQueryStarted(started("q", "run 2"))
        MemoryStore(server).claim(Owner("query", "next process", 0), ["flights"])

    monkeypatch.setattr(
        listener, "make_progress_store", lambda _: _OvertakenStore(server, error, restart)
    )
    recording.onQueryStarted(started("q", "run 1"))
    recording.onQueryProgress(progress_event(progress(end_offset(40))))
    with caplog.at_level(logging.INFO, "pyspark_pykafka"):
        recording.onQueryTerminated(terminated("q"))

    assert server.holder is not None
    assert server.holder.process == "next process"
    assert not server.records
    assert "has been restarted" in caplog.text
    assert all(record.levelno == logging.INFO for record in caplog.records)


def test_a_first_claim_that_meets_another_process(
    sites: defaultdict[str, Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A first claim is lost only to a process that has claimed the store since. The listener does not
    replace that process, even if no event has told the listener that the query was started again.
    """
    server = sites["broker:9092"].server

    def restart() -> None:
        MemoryStore(server).claim(Owner("query", "next process", 0), ["flights"])

    monkeypatch.setattr(
        listener,
        "make_progress_store",
        lambda _: _OvertakenStore(server, ClaimLostError("fenced"), restart),
    )
    recording = ProgressListener(OPTIONS)
    recording.onQueryProgress(progress_event(progress(end_offset(40))))
    recording.onQueryTerminated(terminated("q"))

    assert server.holder is not None
    assert server.holder.process == "next process"


@pytest.mark.parametrize(
    "end", [end_offset(40, "of another query"), {"flights": {"0": 40}}, "7", "None"]
)
def test_other_sources_are_not_recorded(
    sites: defaultdict[str, Site], end: dict[str, object] | str
) -> None:
    """
    Sources with another progress store, of another connector and of another kind are ignored.
    """
    recording = ProgressListener(OPTIONS)

    recording.onQueryProgress(progress_event(progress(end)))
    recording.onQueryTerminated(terminated("q"))

    assert not sites["broker:9092"].offsets


@pytest.mark.parametrize("exception", [None, "boom"])
def test_queries_of_two_clusters_are_not_mixed(
    sites: defaultdict[str, Site], caplog: pytest.LogCaptureFixture, exception: str | None
) -> None:
    """
    If two queries read topics of one name from two clusters, with groups of one name, each listener
    records the query of its own cluster, and logs that it does not record the other query.
    """
    listeners = [
        ProgressListener({**OPTIONS, "kafka.bootstrap.servers": address}) for address in CLUSTERS
    ]
    for number, address in enumerate(CLUSTERS):
        sites[address].cluster.ids["flights"] = address
        end = end_offset(10 + number, topic_id=address, query=address)
        for recording in listeners:
            recording.onQueryProgress(progress_event(progress(end, query_id=address)))

    for address in CLUSTERS:
        for recording in listeners:
            recording.onQueryTerminated(terminated(address, exception))

    assert [sites[address].offsets for address in CLUSTERS] == [{TP: 10}, {TP: 11}]
    ignored = [text for text in caplog.messages if "to a different cluster" in text]
    assert [text.split()[5] for text in ignored] == [*CLUSTERS]


def test_sources_of_two_clusters_are_not_mixed(sites: defaultdict[str, Site]) -> None:
    """
    Of a query's sources with stores of one name, the one of the listener's cluster is recorded.
    """
    recording = ProgressListener({**OPTIONS, "kafka.bootstrap.servers": "a:1"})
    sites["a:1"].cluster.ids["flights"] = "a"
    report = json.loads(progress(end_offset(10, topic_id="a", query="one")))
    other = {**report["sources"][0], "endOffset": end_offset(11, topic_id="b", query="two")}

    recording.onQueryProgress(
        progress_event(json.dumps({**report, "sources": [*report["sources"], other]}))
    )
    recording.onQueryTerminated(terminated("q"))

    assert sites["a:1"].offsets == {TP: 10}


def test_late_end_of_an_earlier_run_is_ignored(sites: defaultdict[str, Site]) -> None:
    """
    If a query has been restarted before the end of its earlier run is reported, only the end of
    its last run is recorded; the process of that run records its progress until then.
    """
    recording = ProgressListener(OPTIONS)
    recording.onQueryStarted(started("q", "run 1"))
    recording.onQueryProgress(progress_event(progress(end_offset(40))))
    recording.onQueryStarted(started("q", "run 2"))

    recording.onQueryTerminated(terminated("q", "boom", run="run 1"))
    assert not sites["broker:9092"].offsets

    recording.onQueryTerminated(terminated("q", run="run 2"))
    assert sites["broker:9092"].offsets == {TP: 40}


def test_recreated_topics_are_not_recorded(sites: defaultdict[str, Site]) -> None:
    """
    An offset of a topic that was deleted and recreated since is not recorded for the new topic.
    """
    recording = ProgressListener(OPTIONS)
    sites["broker:9092"].cluster.ids["flights"] = "new"

    recording.onQueryProgress(progress_event(progress(end_offset(40, topic_id="old"))))
    recording.onQueryTerminated(terminated("q"))

    assert not sites["broker:9092"].offsets


def test_listener_moves_the_record_back(sites: defaultdict[str, Site]) -> None:
    """
    If the last batch moved the query back after a truncation, the listener moves its record back.
    """
    server = sites["broker:9092"].server
    server.records[TP] = ProgressRecord(90, Owner("query", "7 on here", 1), 2)
    recording = ProgressListener(OPTIONS)

    recording.onQueryProgress(progress_event(progress(end_offset(40))))
    recording.onQueryTerminated(terminated("q"))

    assert sites["broker:9092"].offsets == {TP: 40}


def test_stores_in_two_ensembles_are_two_stores(sites: defaultdict[str, Site]) -> None:
    """
    A query that records its progress below the same node of another ZooKeeper is ignored.
    """
    zookeeper = {**OPTIONS, "progressStore": "zookeeper", "zookeeperId": "flights"}
    one, other = ({**zookeeper, "zookeeperHosts": f"{host}:2181"} for host in "ab")
    recording = ProgressListener(one)

    for options in (one, other):
        store = parse_stream_source(options).progress_store.name
        end = end_offset(7 if options is one else 40, store)
        recording.onQueryProgress(progress_event(progress(end)))
    recording.onQueryTerminated(terminated("q"))

    assert sites["broker:9092"].offsets == {TP: 7}
