"""
What a progress store keeps: how far a query has come in each partition, and who says so.

Pure values; how each store writes them down is here too, so that both forms lie side by side.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark_pykafka.errors import ProgressError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_pykafka.offsets import TopicPartition

# Says in a consumer group's metadata that the rest is ours; other clients write what they like.
_OURS = "pykafka"

# Kafka's offset.metadata.max.bytes is 4096 by default, and a cause is the only long part.
_LONGEST_CAUSE = 500


@dataclass(frozen=True, slots=True)
class Owner:
    """
    Who writes progress: one process (``run``) of one query.

    ``query`` is the id in the query's checkpoint, the same over restarts. ``epoch`` grows with each
    process that takes the place, so that of two the later one is known.
    """

    query: str
    run: str
    epoch: int

    def __str__(self) -> str:
        return f"query {self.query} (process {self.run}, epoch {self.epoch})"


@dataclass(frozen=True, slots=True)
class FailedAttempts:
    """
    A micro-batch that has been tried before: how often by now, and what ended the last attempt.
    """

    batch: int
    attempts: int
    cause: str | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """
    How far one partition is done: every offset before ``offset`` is.

    ``owner`` is None for an offset that another client committed. ``batch`` is the last batch that
    moved it, ``topic_id`` that of the topic it means, and ``broker`` where the partition's leader
    was (host, port), for people.
    """

    offset: int
    owner: Owner | None = None
    batch: int | None = None
    topic_id: str | None = None
    failing: FailedAttempts | None = None
    broker: tuple[str, int] | None = None


def to_metadata(record: Record) -> str:
    """
    Return the text that is committed beside a consumer group's offset.
    """
    return json.dumps({"by": _OURS, **_ours(record)}, separators=(",", ":"))


def from_metadata(offset: int, text: str | None) -> Record:
    """
    Read a consumer group's offset with its text, whoever wrote it.
    """
    try:
        given = json.loads(text or "")
    except ValueError:
        return Record(offset)
    if not isinstance(given, dict) or given.get("by") != _OURS:
        return Record(offset)
    return _record(offset, given)


def to_node(tp: TopicPartition, record: Record) -> bytes:
    """
    Return the JSON of a ZooKeeper node: the fields of Storm's Kafka spout, and ours.
    """
    query = record.owner.query if record.owner else None
    host, port = record.broker or (None, None)
    node = {
        "topology": {"id": query, "name": query},
        "offset": record.offset,
        "partition": tp.partition,
        "broker": {"host": host, "port": port},
        "topic": tp.topic,
        **_ours(record),
    }
    return json.dumps(node, separators=(",", ":")).encode()


def from_node(tp: TopicPartition, data: bytes) -> Record:
    """
    Read a node that should be about ``tp``.

    Raises :class:`ProgressError` if it is about another partition, or no such record.
    """
    try:
        given = json.loads(data)
        about = (given["topic"], int(given["partition"]))
        record = _record(int(given["offset"]), given)
    except (ValueError, KeyError, TypeError, AttributeError) as cause:
        msg = (
            f"the ZooKeeper node of {tp} does not hold a progress record: {data!r:.200}; it must "
            "be JSON with topic, partition and offset. Is zookeeperRoot used for something else?"
        )
        raise ProgressError("MALFORMED_RECORD", msg) from cause
    if about != tuple(tp):
        msg = (
            f"the ZooKeeper node of {tp} records topic '{about[0]}', partition {about[1]}; "
            "correct it with 'pykafka progress set', or use another zookeeperId"
        )
        raise ProgressError("RECORDED_TOPIC_DIFFERS", msg)
    return record


def _ours(record: Record) -> dict[str, Any]:
    owner, failing = record.owner, record.failing
    fields = {
        "query": owner.query if owner else None,
        "run": owner.run if owner else None,
        "epoch": owner.epoch if owner else None,
        "batch": record.batch,
        "topicId": record.topic_id,
        "failing": None if failing is None else _of_failing(failing),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _of_failing(failing: FailedAttempts) -> dict[str, Any]:
    cause = {} if failing.cause is None else {"cause": failing.cause[:_LONGEST_CAUSE]}
    return {"batch": failing.batch, "attempts": failing.attempts, **cause}


def _record(offset: int, given: Mapping[str, Any]) -> Record:
    """
    Read our fields leniently: a record of Storm's, or of a later version, is still an offset.
    """
    topology = given.get("topology")
    query = given.get("query", topology.get("id") if isinstance(topology, dict) else None)
    owner = None
    if query is not None:
        owner = Owner(str(query), str(given.get("run", "")), _number(given.get("epoch")) or 0)
    return Record(
        offset=offset,
        owner=owner,
        batch=_number(given.get("batch")),
        topic_id=given.get("topicId"),
        failing=_failing(given.get("failing")),
        broker=_broker(given.get("broker")),
    )


def _failing(given: object) -> FailedAttempts | None:
    if not isinstance(given, dict):
        return None
    batch, attempts = _number(given.get("batch")), _number(given.get("attempts"))
    if batch is None or attempts is None:
        return None
    return FailedAttempts(batch, attempts, given.get("cause"))


def _broker(given: object) -> tuple[str, int] | None:
    if not isinstance(given, dict) or not given.get("host"):
        return None
    return str(given["host"]), _number(given.get("port")) or 0


def _number(given: object) -> int | None:
    return given if isinstance(given, int) else None
