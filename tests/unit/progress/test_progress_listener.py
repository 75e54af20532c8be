"""
The final progress of a query, recorded from Spark's events.
"""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from tests.support.memory_store import MemoryStore, Server
from tests.support.progress_events import progress

from pyspark_pykafka.offsets import QueryIdentity, StreamOffset, TopicPartition
from pyspark_pykafka.options import parse_stream_source
from pyspark_pykafka.progress import listener
from pyspark_pykafka.progress.listener import ProgressListener

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import QueryProgressEvent, QueryTerminatedEvent

OPTIONS = {
    "kafka.bootstrap.servers": "broker:9092",
    "subscribe": "flights",
    "progressStore": "consumerGroup",
    "kafka.group.id": "flights-to-lake",
}
TP = TopicPartition("flights", 0)
STORE = parse_stream_source(OPTIONS).progress_store.name


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    """
    Return the server of the store that the listener writes to.
    """
    server = Server()
    monkeypatch.setattr(listener, "make_progress_store", lambda _: MemoryStore(server))
    return server


def progress_event(report: str) -> QueryProgressEvent:
    """
    Return an event as clients of Spark Connect 4.0 and 4.1 show it, with offsets as Python's text.
    """
    document = json.loads(report)
    sources = [SimpleNamespace(endOffset=str(each["endOffset"])) for each in document["sources"]]
    event = SimpleNamespace(
        progress=SimpleNamespace(id=document["id"], json=report, sources=sources)
    )
    return cast("QueryProgressEvent", event)


def terminated(query_id: str, exception: str | None = None) -> QueryTerminatedEvent:
    """
    Return the event of a query's end.
    """
    return cast("QueryTerminatedEvent", SimpleNamespace(id=query_id, exception=exception))


def end_offset(offset: int, store: str = STORE) -> dict[str, object]:
    """
    Return the offset document of a micro-batch that ended at this offset.
    """
    return StreamOffset({TP: offset}, query=QueryIdentity("query", 3, store)).to_json()


def test_last_batch_is_recorded_when_the_query_ends(server: Server) -> None:
    """
    The listener records the last end offsets, even if the client shows offsets as Python's text.
    """
    recording = ProgressListener(OPTIONS)

    recording.onQueryProgress(progress_event(progress(end_offset(7))))
    recording.onQueryProgress(progress_event(progress(end_offset(40))))
    recording.onQueryTerminated(terminated("q"))

    assert {tp: record.offset for tp, record in server.records.items()} == {TP: 40}


@pytest.mark.parametrize(
    "end", [end_offset(40, "of another query"), {"flights": {"0": 40}}, "7", "None"]
)
def test_other_sources_are_not_recorded(server: Server, end: dict[str, object] | str) -> None:
    """
    Sources with another progress store, of another connector and of another kind are ignored.
    """
    recording = ProgressListener(OPTIONS)

    recording.onQueryProgress(progress_event(progress(end)))
    recording.onQueryTerminated(terminated("q"))

    assert not server.records
