"""
What a progress store does for its one owner, whichever it is; and how records move forward.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Protocol, TypeVar

from pyspark_pykafka.errors import ProgressError, PykafkaError
from pyspark_pykafka.offsets import format_partitions
from pyspark_pykafka.progress.record import Owner, Record

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pyspark_pykafka.offsets import Offsets, StreamOffset, TopicPartition

T = TypeVar("T")

Records = dict["TopicPartition", Record]

#: What the run of an owner begins with that only finishes for a query that has ended.
AFTERWARDS = "after the end, "


class ClaimLostError(PykafkaError):
    """
    The place has to be claimed again, and it will show then whether another has taken it.

    So it is nothing to try again by itself, and never reaches the query.
    """


@dataclass(frozen=True, slots=True)
class Claim:
    """
    The place of the one who may write, and what is recorded so far.
    """

    owner: Owner
    held: Records


class ProgressStore(Protocol):
    """
    Where progress is recorded, by one owner at a time.

    Every call ends within the time-outs of the options, and raises the errors of
    :mod:`pyspark_pykafka.errors`. Only one thread calls.
    """

    def claim(self, owner: Owner, topics: Iterable[str]) -> Claim:
        """
        Take the place; ``owner.epoch`` is 0, or what it was when the claim was lost.

        A former process of the same query gives way at once. Raises :class:`ProgressError` if
        another query holds the place, or a later process of this one.
        """

    def write(self, records: Mapping[TopicPartition, Record]) -> None:
        """
        Write these, if the place is still ours: the store itself checks that.

        Raises :class:`ClaimLostError` if it is not, with none or some of them written.
        """

    def keep_alive(self) -> None:
        """
        Keep the place while there is nothing to write; raises as :meth:`write` does.
        """

    def read(self, topics: Iterable[str] | None = None) -> Records:
        """
        Return what is recorded, of these topics if any are named; needs no claim.
        """

    def delete_records(self) -> None:
        """
        Take all records away; refused with :class:`ProgressError` while somebody writes them.
        """

    def close(self) -> None:
        """
        Give the place up, and what it takes to hold it.
        """


@dataclass(frozen=True, slots=True)
class Advance:
    """
    What to write next; ``behind`` is where the store is ahead of the query, by partition.
    """

    records: Records
    behind: Offsets


def advance(held: Mapping[TopicPartition, Record], done: StreamOffset, owner: Owner) -> Advance:
    """
    Return what a store lacks of ``done``; a record never goes back unless its topic is a new one.
    """
    records: Records = {}
    behind: Offsets = {}
    batch = done.query.batch if done.query and done.query.batch >= 0 else None
    for tp, offset in done.offsets.items():
        topic_id = done.topic_ids.get(tp.topic)
        known = held.get(tp)
        if known is not None and not _remade(known, topic_id):
            if known.offset > offset:
                behind[tp] = known.offset
                continue
            if known.offset == offset and known.failing is None:
                continue
        records[tp] = Record(offset, owner, batch, topic_id)
    return Advance(records, behind)


def touch_owner(held: Mapping[TopicPartition, Record], done: StreamOffset, owner: Owner) -> Records:
    """
    Return a record to write again so that a store names its new owner; none if there is none.
    """
    named = (tp for tp in sorted(held) if tp in done.offsets)
    return {tp: replace(held[tp], owner=owner) for tp in list(named)[:1]}


def check_subject(held: Mapping[TopicPartition, Record], done: StreamOffset, owner: Owner) -> None:
    """
    Refuse records of another query that are about other topics than this one reads.

    Raises :class:`ProgressError` that shows both. What the same query recorded, its own policy
    for lost data has judged already.
    """
    others = {
        tp: record
        for tp, record in held.items()
        if record.owner is not None and record.owner.query != owner.query
    }
    check_topic_ids(others, done.topic_ids)
    recorded, read = {tp.topic for tp in others}, {tp.topic for tp in done.offsets}
    if recorded and read and not recorded & read:
        someone = others[min(others)].owner
        msg = (
            f"progress is recorded there for other topics: {_names(recorded)}, by {someone}; "
            f"this query reads {_names(read)}. Use another group or id, or take the records away "
            "with 'pykafka progress reset'"
        )
        raise ProgressError("RECORDED_TOPIC_DIFFERS", msg)


def check_topic_ids(held: Mapping[TopicPartition, Record], topic_ids: Mapping[str, str]) -> None:
    """
    Refuse records about a topic that was deleted and made again since: :class:`ProgressError`.
    """
    remade = [tp for tp in sorted(held) if _remade(held[tp], topic_ids.get(tp.topic))]
    if remade:
        tp = remade[0]
        msg = (
            f"progress of {format_partitions(remade)} was recorded for a topic that was deleted "
            f"and made again since: the recorded topic id is {held[tp].topic_id}, the topic's is "
            f"{topic_ids.get(tp.topic)}; take the records away with 'pykafka progress reset'"
        )
        raise ProgressError("RECORDED_TOPIC_ID_DIFFERS", msg)


def chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """
    Yield the items in lists of so many, the last one maybe shorter.
    """
    remaining = iter(items)
    while portion := list(islice(remaining, size)):
        yield portion


def newest(held: Mapping[TopicPartition, Record]) -> Owner | None:
    """
    Return the latest owner that wrote any of the records.
    """
    owners = [record.owner for record in held.values() if record.owner is not None]
    return max(owners, key=lambda owner: owner.epoch, default=None)


def next_owner(owner: Owner, last: Owner | None) -> Owner:
    """
    Return the owner with its epoch, given the one that wrote last.

    Raises :class:`ProgressError` where that one has come later than the claimant and is no mere
    helper after the end of a query.
    """
    if last is None:
        return replace(owner, epoch=max(owner.epoch, 1))
    later = 0 < owner.epoch <= last.epoch and last.run != owner.run
    if later and not last.run.startswith(AFTERWARDS):
        msg = (
            f"progress is written by {last} now, which came after this process, {owner}; only one "
            "query at a time can use the same group or id, and the same checkpoint"
        )
        raise ProgressError("PROGRESS_FENCED", msg)
    return replace(owner, epoch=last.epoch + 1)


def _remade(record: Record, topic_id: str | None) -> bool:
    return record.topic_id is not None and topic_id is not None and record.topic_id != topic_id


def _names(topics: Iterable[str]) -> str:
    return ", ".join(f"'{topic}'" for topic in sorted(topics)[:20])
