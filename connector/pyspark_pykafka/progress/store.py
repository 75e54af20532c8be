"""
The contract of progress stores, and the rules by which recorded offsets and owners change.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Protocol, TypeVar

from pyspark_pykafka.errors import ProgressError, PykafkaError, TimeoutExceededError
from pyspark_pykafka.offsets import format_partitions
from pyspark_pykafka.progress.record import Owner, ProgressRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pyspark_pykafka.offsets import Offsets, QueryIdentity, StreamOffset, TopicPartition

T = TypeVar("T")

#: The records of a store, by partition.
Records = dict["TopicPartition", ProgressRecord]

#: Prefix of ``Owner.process`` for a process that only finishes up after its query has ended.
AFTER_END_PREFIX = "after the end, "

#: The condition of the error of a process that a later process of its query has replaced.
FENCED = "PROGRESS_FENCED"


class ClaimLostError(PykafkaError):
    """
    The store must be claimed again; the new claim fails if another process has taken it over.

    The recorder handles this error, so it is not retriable and never reaches the query.
    """


class NoResponseError(ClaimLostError, TimeoutExceededError):
    """
    A write got no response in time. It may still be carried out: a new claim makes sure that later
    writes follow it.
    """

    retriable = False


@dataclass(frozen=True, slots=True)
class StoreClaim:
    """
    The permission to write to a store: the owner with its epoch, and the records so far.
    """

    owner: Owner
    records: Records


class ProgressStore(Protocol):
    """
    A store of progress records with one owner at a time.

    Every call ends within the timeouts of the options and raises the errors of
    :mod:`pyspark_pykafka.errors`. A store is used by a single thread.
    """

    def claim(self, owner: Owner, topics: Iterable[str]) -> StoreClaim:
        """
        Claim the store; ``owner.epoch`` is 0, or the epoch of the lost claim.

        An earlier process of the same query is replaced at once. Raises :class:`ProgressError` if
        another query or a later process of the same query owns the store.
        """

    def write(self, records: Mapping[TopicPartition, ProgressRecord]) -> None:
        """
        Write records; the store itself checks that the claim is still valid.

        Raises :class:`ClaimLostError` if it is not; some of the records may have been written.
        """

    def keep_alive(self) -> None:
        """
        Keep the claim while there is nothing to write; raises the errors of :meth:`write`.
        """

    def read(self, topics: Iterable[str] | None = None) -> Records:
        """
        Return the records of all topics, or only of these; needs no claim.
        """

    def delete_records(self) -> None:
        """
        Delete all records; raises :class:`ProgressError` while a query owns the store.
        """

    def close(self) -> None:
        """
        Release the claim, and all connections.
        """


@dataclass(frozen=True, slots=True)
class Advance:
    """
    The records to write next; ``ahead`` has the store's offsets that are beyond the query's.
    """

    records: Records
    ahead: Offsets


def advance(
    stored: Mapping[TopicPartition, ProgressRecord], completed: StreamOffset, owner: Owner
) -> Advance:
    """
    Return the records of ``completed`` that a store lacks.

    A recorded offset moves back only if the topic was recreated, or if a later batch of the same
    query ends before it: then data loss is allowed, and the log was truncated.
    """
    records: Records = {}
    ahead: Offsets = {}
    batch = completed.query.batch if completed.query and completed.query.batch >= 0 else None
    for tp, offset in completed.offsets.items():
        topic_id = completed.topic_ids.get(tp.topic)
        record = stored.get(tp)
        if record is not None and not is_recreated(record, topic_id):
            if record.offset > offset and not _is_of_earlier_batch(record, completed.query):
                ahead[tp] = record.offset
                continue
            if record.offset == offset and record.failing is None:
                continue
        records[tp] = ProgressRecord(offset, owner, batch, topic_id)
    return Advance(records, ahead)


def _is_of_earlier_batch(record: ProgressRecord, query: QueryIdentity | None) -> bool:
    """
    Whether an earlier batch of the same query moved the record's offset.
    """
    if query is None or record.owner is None or record.batch is None:
        return False
    return record.owner.query == query.id and record.batch < query.batch


def record_for_new_owner(
    stored: Mapping[TopicPartition, ProgressRecord], completed: StreamOffset, owner: Owner
) -> Records:
    """
    Return one existing record to rewrite with its new owner; empty if there is none.
    """
    shared = [tp for tp in sorted(stored) if tp in completed.offsets]
    return {tp: stored[tp].owned_by(owner) for tp in shared[:1]}


def check_topics(
    stored: Mapping[TopicPartition, ProgressRecord], completed: StreamOffset, owner: Owner
) -> None:
    """
    Raise :class:`ProgressError` if another query recorded topics that this one does not read.

    Records of the same query are not checked: its data-loss policy covers changed topics.
    """
    of_other_queries = {
        tp: record
        for tp, record in stored.items()
        if record.owner is not None and record.owner.query != owner.query
    }
    check_topic_ids(of_other_queries, completed.topic_ids)
    recorded, read = {tp.topic for tp in of_other_queries}, {tp.topic for tp in completed.offsets}
    if recorded and read and not recorded & read:
        writer = of_other_queries[min(of_other_queries)].owner
        msg = (
            f"the progress store has records of other topics: {format_topics(recorded)}, by "
            f"{writer}; this query reads {format_topics(read)}. Use another group or id, or delete "
            "the records with 'pykafka progress reset'"
        )
        raise ProgressError("RECORDED_TOPIC_DIFFERS", msg)


def check_topic_ids(
    stored: Mapping[TopicPartition, ProgressRecord], topic_ids: Mapping[str, str]
) -> None:
    """
    Raise :class:`ProgressError` if a recorded topic has been deleted and recreated since.
    """
    recreated = [tp for tp in sorted(stored) if is_recreated(stored[tp], topic_ids.get(tp.topic))]
    if recreated:
        tp = recreated[0]
        msg = (
            f"progress of {format_partitions(recreated)} was recorded for a topic that has been "
            f"deleted and recreated since: the recorded topic id is {stored[tp].topic_id}, the "
            f"topic's is {topic_ids.get(tp.topic)}; delete the records with 'pykafka progress "
            "reset'"
        )
        raise ProgressError("RECORDED_TOPIC_ID_DIFFERS", msg)


def chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """
    Yield the items in lists of ``size``; the last one may be shorter.
    """
    remaining = iter(items)
    while chunk := list(islice(remaining, size)):
        yield chunk


def latest_owner(stored: Mapping[TopicPartition, ProgressRecord]) -> Owner | None:
    """
    Return the owner with the highest epoch among the records, or None.
    """
    owners = [record.owner for record in stored.values() if record.owner is not None]
    return max(owners, key=lambda owner: owner.epoch, default=None)


def next_owner(owner: Owner, last: Owner | None) -> Owner:
    """
    Return ``owner`` with the epoch after that of the last writer.

    Raises :class:`ProgressError` if the last writer's epoch is newer than the claimant's, unless
    that writer was a ProgressListener finishing up after the query had ended.
    """
    if last is None:
        return replace(owner, epoch=max(owner.epoch, 1))
    is_newer = 0 < owner.epoch <= last.epoch and last.process != owner.process
    if is_newer and not last.process.startswith(AFTER_END_PREFIX):
        raise fenced_error(str(last), owner)
    # Records that were overwritten by another client may show an older epoch than the claimant's.
    return replace(owner, epoch=max(last.epoch, owner.epoch) + 1)


def fenced_error(writer: str, owner: Owner) -> ProgressError:
    """
    Return the error of a process that a later process of its query, ``writer``, has replaced.
    """
    msg = (
        f"progress is written by {writer} now, which has replaced this process, {owner}; only one "
        "query at a time can use the same group or id, and the same checkpoint"
    )
    return ProgressError(FENCED, msg)


def is_recreated(record: ProgressRecord, topic_id: str | None) -> bool:
    """
    Whether the record's topic was deleted and recreated since; unknown ids count as equal.
    """
    return record.topic_id is not None and topic_id is not None and record.topic_id != topic_id


def position_in_log(record: ProgressRecord, topic_id: str | None, log_start: int) -> int:
    """
    Return the record's offset; or the log's start, if its topic was recreated since.

    A recorded offset is not an offset of the topic that took the name later.
    """
    return log_start if is_recreated(record, topic_id) else record.offset


def format_topics(topics: Iterable[str]) -> str:
    """
    Return topics as text for a message: at most 20 names, in quotes.
    """
    return ", ".join(f"'{topic}'" for topic in sorted(topics)[:20])
