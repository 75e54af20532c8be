"""
Progress records: their serialised forms, and the rules by which they are updated.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_pykafka.errors import ProgressError
from pyspark_pykafka.offsets import QueryIdentity, StreamOffset, TopicPartition
from pyspark_pykafka.progress.record import (
    FailedAttempts,
    Owner,
    ProgressRecord,
    from_metadata,
    from_znode,
    owner_from_znode,
    to_metadata,
    to_znode,
)
from pyspark_pykafka.progress.store import advance, check_topics, next_owner, record_for_new_owner

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
ME = Owner("q1", "7 on here", 3)
OTHER = Owner("q2", "8 on there", 5)
FULL = ProgressRecord(42, ME, 9, "id-t", FailedAttempts(10, 2, "boom"))


def completed(offsets: dict[TopicPartition, int], batch: int = 9, **ids: str) -> StreamOffset:
    """
    Return the offsets of a query after a batch; the topic t has the id id-t.
    """
    return StreamOffset(offsets, {"t": "id-t", **ids}, query=QueryIdentity("q1", batch))


@pytest.mark.parametrize(
    "record", [FULL, ProgressRecord(0), ProgressRecord(5, ME), ProgressRecord(7, ME, 0, "x")]
)
def test_record_survives_serialisation(record: ProgressRecord) -> None:
    """
    A record is equal after a round trip through group metadata or a ZooKeeper node.
    """
    assert from_metadata(record.offset, to_metadata(record)) == record
    assert from_znode(T1, to_znode(T1, record)) == record


def test_node_has_the_fields_of_storms_spout() -> None:
    """
    A reader of Storm's records finds topology, offset, partition, broker and topic.
    """
    node = json.loads(to_znode(T1, ProgressRecord(42, ME, 9, "id-t", broker=("b.example", 9092))))

    assert node["topology"] == {"id": "q1", "name": "q1"}
    assert (node["offset"], node["partition"], node["topic"]) == (42, 1, "t")
    assert node["broker"] == {"host": "b.example", "port": 9092}


def test_node_of_storm_is_parsed() -> None:
    """
    Storm's own record, without our fields, gives its offset and its writer.
    """
    storm_record = {
        "topology": {"id": "top-1", "name": "top"},
        "offset": 23,
        "partition": 1,
        "broker": {"host": "b", "port": 9092},
        "topic": "t",
    }

    record = from_znode(T1, json.dumps(storm_record).encode())

    assert record == ProgressRecord(23, Owner("top-1", "", 0), broker=("b", 9092))


@pytest.mark.parametrize(
    "text",
    [None, "", "{", "[]", '"x"', '{"by":"someone"}', "saved at noon", "[" * 4000, '{"a":' * 600],
)
def test_metadata_of_other_clients_is_ignored(text: str | None) -> None:
    """
    Other consumers may commit any metadata; only their offset is used.
    """
    assert from_metadata(5, text) == ProgressRecord(5)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[1]",
        b"[" * 100_000,
        b'{"offset":1}',
        b'{"topic":"t","partition":"x"}',
        b'{"topic":"t","partition":1,"offset":Infinity}',
    ],
)
def test_malformed_node_is_rejected(data: bytes) -> None:
    """
    The error names the node, its content and the required form.
    """
    with pytest.raises(ProgressError, match="node of t-1 does not hold a progress record"):
        from_znode(T1, data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
OWN_FIELDS = st.fixed_dictionaries(
    {"by": st.just("pykafka")},
    optional={
        name: JSON | st.fixed_dictionaries({"batch": JSON, "attempts": JSON, "cause": JSON})
        for name in ("query", "run", "epoch", "batch", "topicId", "failing", "broker", "topology")
    },
)


@given(OWN_FIELDS.map(json.dumps) | JSON.map(json.dumps) | st.text())
def test_any_metadata_is_parsed(text: str) -> None:
    """
    Whatever a client commits as metadata, the offset is read, and fields of other clients are
    ignored.
    """
    record = from_metadata(5, text)

    assert record.offset == 5
    assert isinstance(record.topic_id, str | None)
    if record.owner is not None:
        assert {type(record.owner.query), type(record.owner.process)} == {str}
    if record.failing is not None:
        assert isinstance(record.failing.cause, str | None)
    assert from_metadata(5, to_metadata(record)) == record


@given(st.binary() | JSON.map(lambda value: json.dumps(value).encode()) | st.just(b"[" * 100_000))
def test_any_node_of_an_owner_is_parsed(data: bytes) -> None:
    """
    Any content is parsed where an owner's node is expected: a node that another application wrote
    has no owner.
    """
    assert owner_from_znode(data) is None


def test_node_of_another_topic_is_rejected() -> None:
    """
    The recorded topic is compared with the path of the node, and the error names both.
    """
    with pytest.raises(ProgressError, match="node of t-1 records topic 'u', partition 0"):
        from_znode(T1, to_znode(U0, ProgressRecord(1)))


def test_long_cause_is_truncated() -> None:
    """
    A long error is truncated, because Kafka accepts only 4,096 bytes of metadata by default.
    """
    assert len(to_metadata(ProgressRecord(1, failing=FailedAttempts(1, 2, "x" * 9_000)))) < 1_000


def test_only_moved_offsets_are_written() -> None:
    """
    Of three partitions, the one that has moved and the new one are written.
    """
    stored = {T0: ProgressRecord(3, ME, 8, "id-t"), T1: ProgressRecord(5, ME, 8, "id-t")}

    step = advance(stored, completed({T0: 3, T1: 6, U0: 1}), ME)

    assert step.records == {T1: ProgressRecord(6, ME, 9, "id-t"), U0: ProgressRecord(1, ME, 9)}
    assert step.ahead == {}


@pytest.mark.parametrize(
    "record",
    [
        ProgressRecord(8, OTHER, 1, "id-t"),
        ProgressRecord(8),
        ProgressRecord(8, ME),
        ProgressRecord(8, ME, 9),
        ProgressRecord(8, ME, 10),
    ],
)
def test_store_ahead_is_not_written(record: ProgressRecord) -> None:
    """
    A greater offset is ahead of the query unless an earlier batch of the same query is known to
    have recorded it: it is not moved back, but reported.
    """
    step = advance({T0: record}, completed({T0: 3}), ME)

    assert (step.records, step.ahead) == ({}, {T0: 8})


def test_offset_follows_a_query_that_went_back() -> None:
    """
    A recorded offset of an earlier batch of the same query moves back with the query: the log was
    truncated, and the query's options allow data loss.
    """
    step = advance({T0: ProgressRecord(8, ME, 8, "id-t")}, completed({T0: 3}), OTHER)

    assert (step.records, step.ahead) == ({T0: ProgressRecord(3, OTHER, 9, "id-t")}, {})


def test_recreated_topic_starts_over() -> None:
    """
    An offset of the deleted topic of the same name does not count.
    """
    step = advance({T0: ProgressRecord(8, ME, 1, "old")}, completed({T0: 3}), ME)

    assert step.records == {T0: ProgressRecord(3, ME, 9, "id-t")}


def test_finished_batch_clears_its_failures() -> None:
    """
    The number of attempts is removed even if the offset is unchanged.
    """
    step = advance({T0: FULL}, completed({T0: 42}), ME)

    assert step.records == {T0: ProgressRecord(42, ME, 9, "id-t")}


def test_unknown_batch_number_is_not_recorded() -> None:
    """
    Without a batch number, as after a checkpoint of the JVM connector, none is recorded.
    """
    assert advance({}, completed({T0: 1}, batch=-1), ME).records[T0].batch is None


def test_touch_owner_rewrites_one_record() -> None:
    """
    One existing record is written again with the new owner; if there is none, nothing is written.
    The record keeps its batch number only if the new owner belongs to the same query.
    """
    both = completed({T0: 3, T1: 5})
    stored = {T0: ProgressRecord(3, ME, 8), T1: ProgressRecord(5, ME, 8)}
    successor = Owner("q1", "9 on here", 4)

    assert record_for_new_owner(stored, both, successor) == {T0: ProgressRecord(3, successor, 8)}
    assert record_for_new_owner(stored, both, OTHER) == {T0: ProgressRecord(3, OTHER)}
    assert record_for_new_owner({}, both, ME) == {}


def test_other_topics_of_another_query_are_rejected() -> None:
    """
    The error names the recorded topics and the topics of this query.
    """
    with pytest.raises(ProgressError, match=r"other topics: 'u', by query q2 .* reads 't'"):
        check_topics({U0: ProgressRecord(1, OTHER)}, completed({T0: 1}), ME)


def test_recreated_topic_of_another_query_is_rejected() -> None:
    """
    The error names both topic ids.
    """
    with pytest.raises(
        ProgressError, match=r"t-0 .* recorded topic id is old, the topic's is id-t"
    ):
        check_topics({T0: ProgressRecord(1, OTHER, topic_id="old")}, completed({T0: 1}), ME)


@pytest.mark.parametrize(
    "stored",
    [
        {U0: ProgressRecord(1, ME)},
        {T0: ProgressRecord(1, ME, topic_id="old")},
        {U0: ProgressRecord(1)},
        {T0: ProgressRecord(1, OTHER), U0: ProgressRecord(1, OTHER)},
    ],
)
def test_other_stored_records_are_accepted(stored: dict[TopicPartition, ProgressRecord]) -> None:
    """
    A query may change its topics, a group may have offsets of other clients, and topics may be
    added.
    """
    check_topics(stored, completed({T0: 1}), ME)


def test_epoch_grows_with_each_owner() -> None:
    """
    A new owner has the next epoch, and a replaced owner cannot claim again.
    """
    assert next_owner(Owner("q1", "a", 0), None).epoch == 1
    assert next_owner(Owner("q1", "b", 0), OTHER).epoch == 6
    assert next_owner(Owner("q1", "b", 6), Owner("q1", "b", 6)).epoch == 7
    with pytest.raises(ProgressError, match=r"written by query q1 \(process c, epoch 7\) now"):
        next_owner(Owner("q1", "b", 6), Owner("q1", "c", 7))


def test_listener_gives_way_to_the_next_process() -> None:
    """
    A listener's claim after the end of a query does not fence the query's next process.
    """
    assert next_owner(Owner("q1", "b", 6), Owner("q1", "after the end, c", 7)).epoch == 8
