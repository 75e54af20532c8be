"""
Records of progress: what is written down, and what is read of what others wrote.
"""

from __future__ import annotations

import json

import pytest

from pyspark_pykafka.errors import ProgressError
from pyspark_pykafka.offsets import QueryIdentity, StreamOffset, TopicPartition
from pyspark_pykafka.progress.record import (
    FailedAttempts,
    Owner,
    Record,
    from_metadata,
    from_node,
    to_metadata,
    to_node,
)
from pyspark_pykafka.progress.store import advance, check_subject, next_owner, touch_owner

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
ME = Owner("q1", "7 on here", 3)
OTHER = Owner("q2", "8 on there", 5)
FULL = Record(42, ME, 9, "id-t", FailedAttempts(10, 2, "boom"))


def done(offsets: dict[TopicPartition, int], batch: int = 9, **ids: str) -> StreamOffset:
    """
    Return where a query stands after a batch; the topic t has the id id-t.
    """
    return StreamOffset(offsets, {"t": "id-t", **ids}, query=QueryIdentity("q1", batch))


@pytest.mark.parametrize("record", [FULL, Record(0), Record(5, ME), Record(7, ME, 0, "x")])
def test_a_record_survives_both_forms(record: Record) -> None:
    """
    Whatever is written to a group's metadata or a node is read again the same.
    """
    assert from_metadata(record.offset, to_metadata(record)) == record
    assert from_node(T1, to_node(T1, record)) == record


def test_a_node_has_the_fields_of_storms_spout() -> None:
    """
    A reader of Storm's records finds topology, offset, partition, broker and topic.
    """
    node = json.loads(to_node(T1, Record(42, ME, 9, "id-t", broker=("b.example", 9092))))

    assert node["topology"] == {"id": "q1", "name": "q1"}
    assert (node["offset"], node["partition"], node["topic"]) == (42, 1, "t")
    assert node["broker"] == {"host": "b.example", "port": 9092}


def test_a_node_of_storm_is_read() -> None:
    """
    Storm's own record, which has none of our fields, gives its offset and who wrote it.
    """
    storms = {
        "topology": {"id": "top-1", "name": "top"},
        "offset": 23,
        "partition": 1,
        "broker": {"host": "b", "port": 9092},
        "topic": "t",
    }

    record = from_node(T1, json.dumps(storms).encode())

    assert record == Record(23, Owner("top-1", "", 0), broker=("b", 9092))


@pytest.mark.parametrize("text", [None, "", "{", "[]", '"x"', '{"by":"someone"}', "saved at noon"])
def test_metadata_of_others_is_an_offset_only(text: str | None) -> None:
    """
    A consumer may write beside its offset what it likes; it is nobody of ours then.
    """
    assert from_metadata(5, text) == Record(5)


@pytest.mark.parametrize("data", [b"", b"[1]", b'{"offset":1}', b'{"topic":"t","partition":"x"}'])
def test_a_node_that_holds_something_else_is_refused(data: bytes) -> None:
    """
    The error says which node, what is in it, and what must be.
    """
    with pytest.raises(ProgressError, match="node of t-1 does not hold a progress record"):
        from_node(T1, data)


def test_a_node_about_another_topic_is_refused() -> None:
    """
    The recorded topic is checked against the node it lies in, and both are shown.
    """
    with pytest.raises(ProgressError, match="node of t-1 records topic 'u', partition 0"):
        from_node(T1, to_node(U0, Record(1)))


def test_a_long_cause_is_cut() -> None:
    """
    Kafka takes 4,096 bytes of metadata by default, however long an error is.
    """
    assert len(to_metadata(Record(1, failing=FailedAttempts(1, 2, "x" * 9_000)))) < 1_000


def test_only_what_moved_is_written() -> None:
    """
    Of three partitions one is as recorded, one has moved, one is new.
    """
    held = {T0: Record(3, ME, 8, "id-t"), T1: Record(5, ME, 8, "id-t")}

    step = advance(held, done({T0: 3, T1: 6, U0: 1}), ME)

    assert step.records == {T1: Record(6, ME, 9, "id-t"), U0: Record(1, ME, 9)}
    assert step.behind == {}


def test_a_record_never_goes_back() -> None:
    """
    Where the store is ahead nothing is written, and it is told.
    """
    step = advance({T0: Record(8, OTHER, 1, "id-t")}, done({T0: 3}), ME)

    assert (step.records, step.behind) == ({}, {T0: 8})


def test_a_topic_made_again_starts_anew() -> None:
    """
    An offset of the topic that had the name before says nothing about this one.
    """
    step = advance({T0: Record(8, ME, 1, "old")}, done({T0: 3}), ME)

    assert step.records == {T0: Record(3, ME, 9, "id-t")}


def test_a_finished_batch_takes_its_failures_away() -> None:
    """
    The count of attempts goes with the batch, though the offset is what it was.
    """
    step = advance({T0: FULL}, done({T0: 42}), ME)

    assert step.records == {T0: Record(42, ME, 9, "id-t")}


def test_a_query_of_unknown_batch_records_none() -> None:
    """
    A checkpoint of the JVM connector has no numbers of ours.
    """
    assert advance({}, done({T0: 1}, batch=-1), ME).records[T0].batch is None


def test_a_new_owner_is_named_once() -> None:
    """
    One record that is there already is written again; none if there is none.
    """
    held = {T0: Record(3, OTHER, 8), T1: Record(5, OTHER, 8)}

    assert touch_owner(held, done({T0: 3, T1: 5}), ME) == {T0: Record(3, ME, 8)}
    assert touch_owner({}, done({T0: 3}), ME) == {}


def test_records_of_another_query_about_other_topics_are_refused() -> None:
    """
    Both are shown: what is recorded, and what is read.
    """
    with pytest.raises(ProgressError, match=r"other topics: 'u', by query q2 .* reads 't'"):
        check_subject({U0: Record(1, OTHER)}, done({T0: 1}), ME)


def test_records_of_another_query_about_a_former_topic_are_refused() -> None:
    """
    Both ids are shown.
    """
    with pytest.raises(
        ProgressError, match=r"t-0 .* recorded topic id is old, the topic's is id-t"
    ):
        check_subject({T0: Record(1, OTHER, topic_id="old")}, done({T0: 1}), ME)


@pytest.mark.parametrize(
    "held",
    [
        {U0: Record(1, ME)},
        {T0: Record(1, ME, topic_id="old")},
        {U0: Record(1)},
        {T0: Record(1, OTHER), U0: Record(1, OTHER)},
    ],
)
def test_other_records_are_no_reason_to_refuse(held: dict[TopicPartition, Record]) -> None:
    """
    A query may change its topics, a group may have offsets of other clients, topics may be added.
    """
    check_subject(held, done({T0: 1}), ME)


def test_epochs_grow_with_each_owner() -> None:
    """
    Whoever takes the place comes after the last one, and an old one may not come back.
    """
    assert next_owner(Owner("q1", "a", 0), None).epoch == 1
    assert next_owner(Owner("q1", "b", 0), OTHER).epoch == 6
    assert next_owner(Owner("q1", "b", 6), Owner("q1", "b", 6)).epoch == 7
    with pytest.raises(ProgressError, match=r"written by query q1 \(process c, epoch 7\) now"):
        next_owner(Owner("q1", "b", 6), Owner("q1", "c", 7))


def test_who_comes_after_the_end_gives_way() -> None:
    """
    The listener finishes for a query that has ended; the query's next process is let in again.
    """
    assert next_owner(Owner("q1", "b", 6), Owner("q1", "after the end, c", 7)).epoch == 8
