"""
The records of a progress store: the offset of each partition, and which process wrote it.

Pure values, with their serialised forms in a consumer group and in ZooKeeper.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark_pykafka.errors import ProgressError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_pykafka.offsets import TopicPartition

# Marks a consumer group's offset metadata as the connector's; other clients write other text.
_MARKER = "pykafka"

# Errors of parsing another application's data: not JSON, nested too deep, or without the fields.
_MALFORMED = (ValueError, RecursionError, OverflowError, KeyError, TypeError)

# Kafka's offset.metadata.max.bytes is 4096 by default; the cause is the only long field.
_MAX_CAUSE_LENGTH = 500


@dataclass(frozen=True, slots=True)
class Owner:
    """
    The writer of a store: one ``process`` of one query.

    ``query`` is the id in the query's checkpoint, which survives restarts. ``epoch`` grows with
    each process that claims the store, so it shows which of two came later.
    """

    query: str
    process: str
    epoch: int

    def __str__(self) -> str:
        return f"query {self.query} (process {self.process}, epoch {self.epoch})"


@dataclass(frozen=True, slots=True)
class FailedAttempts:
    """
    A micro-batch that has failed: the number of attempts, and the error that ended the last one.
    """

    batch: int
    attempts: int
    cause: str | None = None


@dataclass(frozen=True, slots=True)
class ProgressRecord:
    """
    The progress of one partition: every record before ``offset`` is processed.

    ``owner`` is None for an offset committed by another client. ``batch`` is the last batch that
    moved the offset, None if it is unknown or not one of the owner's query; ``topic_id`` is the id
    of the partition's topic, ``failing`` the batch that is being retried. ``broker`` is the (host,
    port) of the leader at the time, for human readers only.
    """

    offset: int
    owner: Owner | None = None
    batch: int | None = None
    topic_id: str | None = None
    failing: FailedAttempts | None = None
    broker: tuple[str, int] | None = None

    def owned_by(self, owner: Owner) -> ProgressRecord:
        """
        Return the record with another owner, and without the batch of another query.
        """
        is_same_query = self.owner is not None and self.owner.query == owner.query
        return replace(self, owner=owner, batch=self.batch if is_same_query else None)


def to_metadata(record: ProgressRecord) -> str:
    """
    Return the metadata to commit with a consumer group's offset.
    """
    return json.dumps({"by": _MARKER, **_own_fields(record)}, separators=(",", ":"))


def from_metadata(offset: int, text: str | None) -> ProgressRecord:
    """
    Parse a consumer group's offset and its metadata, whichever client wrote them.
    """
    try:
        fields = json.loads(text or "")
    except (ValueError, RecursionError):
        return ProgressRecord(offset)
    if not isinstance(fields, dict) or fields.get("by") != _MARKER:
        return ProgressRecord(offset)
    return _record(offset, fields)


def to_znode(tp: TopicPartition, record: ProgressRecord) -> bytes:
    """
    Return the JSON of a ZooKeeper node: the fields of Storm's Kafka spout, and our own.
    """
    query = record.owner.query if record.owner else None
    host, port = record.broker or (None, None)
    node = {
        "topology": {"id": query, "name": query},
        "offset": record.offset,
        "partition": tp.partition,
        "broker": {"host": host, "port": port},
        "topic": tp.topic,
        **_own_fields(record),
    }
    return json.dumps(node, separators=(",", ":")).encode()


def from_znode(tp: TopicPartition, data: bytes) -> ProgressRecord:
    """
    Parse the ZooKeeper node of ``tp``.

    Raises :class:`ProgressError` if it records another partition, or is not a progress record.
    """
    try:
        fields = json.loads(data)
        recorded = (fields["topic"], int(fields["partition"]))
        record = _record(int(fields["offset"]), fields)
    except (*_MALFORMED, AttributeError) as cause:
        msg = (
            f"the ZooKeeper node of {tp} does not hold a progress record: {data!r:.200}; it must "
            "be JSON with topic, partition and offset. Is zookeeperRoot used for something else?"
        )
        raise ProgressError("MALFORMED_RECORD", msg) from cause
    if recorded != tuple(tp):
        msg = (
            f"the ZooKeeper node of {tp} records topic '{recorded[0]}', partition {recorded[1]}; "
            "correct it with 'pykafka progress set', or use another zookeeperId"
        )
        raise ProgressError("RECORDED_TOPIC_DIFFERS", msg)
    return record


def _own_fields(record: ProgressRecord) -> dict[str, Any]:
    owner, failing = record.owner, record.failing
    fields = {
        "query": owner.query if owner else None,
        "run": owner.process if owner else None,
        "epoch": owner.epoch if owner else None,
        "batch": record.batch,
        "topicId": record.topic_id,
        "failing": None if failing is None else _failing_fields(failing),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _failing_fields(failing: FailedAttempts) -> dict[str, Any]:
    cause = {} if failing.cause is None else {"cause": failing.cause[:_MAX_CAUSE_LENGTH]}
    return {"batch": failing.batch, "attempts": failing.attempts, **cause}


def _record(offset: int, fields: Mapping[str, Any]) -> ProgressRecord:
    """
    Parse our own fields leniently: a record of Storm or of a later version still has an offset.
    """
    topology = fields.get("topology")
    query = _text(fields.get("query", topology.get("id") if isinstance(topology, dict) else None))
    owner = None
    if query is not None:
        owner = Owner(query, _text(fields.get("run")) or "", _number(fields.get("epoch")) or 0)
    return ProgressRecord(
        offset=offset,
        owner=owner,
        batch=_number(fields.get("batch")),
        topic_id=_text(fields.get("topicId")),
        failing=_failing(fields.get("failing")),
        broker=_broker(fields.get("broker")),
    )


def _failing(fields: object) -> FailedAttempts | None:
    if not isinstance(fields, dict):
        return None
    batch, attempts = _number(fields.get("batch")), _number(fields.get("attempts"))
    if batch is None or attempts is None:
        return None
    return FailedAttempts(batch, attempts, _text(fields.get("cause")))


def _broker(fields: object) -> tuple[str, int] | None:
    if not isinstance(fields, dict):
        return None
    host = _text(fields.get("host"))
    return (host, _number(fields.get("port")) or 0) if host else None


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def owner_to_znode(owner: Owner) -> bytes:
    """
    Return the data of an owner's node in ZooKeeper.
    """
    fields = {"query": owner.query, "run": owner.process, "epoch": owner.epoch}
    return json.dumps(fields, separators=(",", ":")).encode()


def owner_from_znode(data: bytes) -> Owner | None:
    """
    Return the owner in a node, or None if the node has none.
    """
    try:
        fields = json.loads(data)
        return Owner(str(fields["query"]), str(fields["run"]), int(fields["epoch"]))
    except _MALFORMED:
        # A node created as the parent of others, or by another application.
        return None
