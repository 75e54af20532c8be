"""
`pykafka peek --follow` shows no record twice when metadata is missing for a moment.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, cast

import pytest

from pyspark_pykafka.cli import peek
from pyspark_pykafka.cli.followed_topic import FollowedTopic
from pyspark_pykafka.errors import UnknownTopicError
from pyspark_pykafka.offsets import Assignment, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_pykafka.engines.metadata import MetadataClient
    from pyspark_pykafka.offsets import OffsetRange, Offsets

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
ID = "a"


class Brokers:
    """
    The driver's metadata client of a topic whose partitions a test changes.
    """

    def __init__(self, topic_id: str | None) -> None:
        self.topic_id = topic_id
        self.log_ends = {ZERO: 3, ONE: 3}
        self.hidden: set[TopicPartition] = set()

    def existing(self, topics: list[str]) -> Assignment:
        tps = tuple(tp for tp in self.log_ends if tp not in self.hidden)
        has_id = tps and self.topic_id is not None
        return Assignment(tps, dict.fromkeys(topics, str(self.topic_id)) if has_id else {})

    def log_start_offsets(self, tps: list[TopicPartition]) -> Offsets:
        return dict.fromkeys(tps, 0)

    def end_offsets(self, tps: list[TopicPartition]) -> Offsets:
        return {tp: end for tp, end in self.log_ends.items() if tp in {*tps} - self.hidden}

    def follow(self, *, partition: int | None = None) -> tuple[FollowedTopic, list[str]]:
        """
        Return the position at the current ends, and the list of its events.
        """
        starts = {tp: end for tp, end in self.log_ends.items() if partition in (None, tp.partition)}
        events: list[str] = []
        client = cast("MetadataClient", self)
        followed = FollowedTopic(
            *(client, "t", self.topic_id, starts), partition=partition, on_event=events.append
        )
        return followed, events


@pytest.mark.parametrize("topic_id", [ID, None])
@pytest.mark.parametrize("partition", [None, 0])
@pytest.mark.parametrize("hidden", [{ZERO}, {ZERO, ONE}])
def test_partitions_missing_in_one_response_keep_their_position(
    topic_id: str | None, partition: int | None, hidden: set[TopicPartition]
) -> None:
    """
    A topic or a partition that is missing in one metadata response is followed from its last
    position, with or without topic ids, and no event is reported.
    """
    brokers = Brokers(topic_id)
    followed, events = brokers.follow(partition=partition)
    positions = dict(followed.positions)

    for _ in range(2):
        brokers.hidden = hidden
        followed.refresh()
        followed.advance(followed.ends())
        brokers.hidden = set()
        assert not followed.refresh()

    assert (followed.positions, events) == (positions, [])


def test_a_selected_partition_of_the_same_topic_is_awaited() -> None:
    """
    If responses lack the selected partition, but the topic has the same id, the topic is not
    reported as recreated.
    """
    brokers = Brokers(ID)
    followed, events = brokers.follow(partition=0)
    brokers.hidden = {ZERO}

    for _ in range(3):
        assert followed.refresh()
    brokers.hidden = set()
    followed.refresh()

    assert followed.positions == {ZERO: 3}
    assert events == ["the topic t has no partition 0 at present; waiting for it"]


@pytest.mark.parametrize(("absent", "end"), [(1, 2), (2, 5)])
def test_a_recreated_topic_without_ids(absent: int, end: int) -> None:
    """
    Without topic ids, a topic counts as recreated if it was missing in two responses in a row, or
    if it was missing in one and its log is shorter than before.
    """
    brokers = Brokers(None)
    followed, events = brokers.follow()
    brokers.hidden = {ZERO, ONE}
    for _ in range(absent):
        assert followed.refresh()

    brokers.hidden, brokers.log_ends = set(), {ZERO: end, ONE: 3}

    assert followed.refresh()
    assert followed.positions == {ZERO: 0, ONE: 0}
    assert "deleted and recreated" in events[-1]


def test_a_topic_without_ids_recreated_with_fewer_partitions() -> None:
    """
    Without topic ids, a topic that was missing in one response also counts as recreated if one of
    its partitions no longer exists, so that no record of the new topic is skipped.
    """
    brokers = Brokers(None)
    followed, events = brokers.follow()
    brokers.hidden = {ZERO, ONE}
    assert followed.refresh()

    brokers.hidden, brokers.log_ends = set(), {ZERO: 5}

    assert followed.refresh()
    assert followed.positions == {ZERO: 0}
    assert "deleted and recreated" in events[-1]


class Broken:
    """
    A topic whose first read fails after one record.
    """

    def __init__(self) -> None:
        self.failures = 1
        self.topic_ids: list[str | None] = []

    def _replace(self, topic_id: str | None) -> Broken:
        self.topic_ids.append(topic_id)
        return self

    def read(self, ranges: list[OffsetRange]) -> Iterator[tuple[OffsetRange, dict[str, int]]]:
        for offset_range in ranges:
            for offset in range(offset_range.start, offset_range.end):
                yield offset_range, {"partition": offset_range.tp.partition, "offset": offset}
                if self.failures:
                    self.failures -= 1
                    msg = "the topic is unknown"
                    raise UnknownTopicError(msg)


class Polls(threading.Event):
    """
    Makes the partitions visible before the second poll, and ends after the third.
    """

    def __init__(self, brokers: Brokers) -> None:
        super().__init__()
        self._brokers, self._polls = brokers, 0

    def wait(self, timeout: float | None = None) -> bool:  # noqa: ARG002 (Event has it)
        self._polls += 1
        self._brokers.hidden = set()
        return self._polls > 2


def test_a_read_that_fails_in_the_middle_shows_no_record_twice() -> None:
    """
    If a read fails because the topic is missing for a moment, the next read continues after the
    last record shown, in the topic with the same id.
    """
    brokers = Brokers(ID)
    followed, _ = brokers.follow()
    ends = dict.fromkeys(brokers.log_ends, 5)
    brokers.log_ends, brokers.hidden = ends, {ZERO, ONE}
    shown: list[tuple[int, int]] = []

    def show(record: dict[str, Any]) -> None:
        shown.append((record["partition"], record["offset"]))

    topic = Broken()
    peek._follow(cast("peek._Topic", topic), followed, ends, show, stop=Polls(brokers))

    assert sorted(shown) == [(0, 3), (0, 4), (1, 3), (1, 4)]
    assert set(topic.topic_ids) == {ID}
