"""
Streams with an end at a time: once a partition has reached its end, it stays there, whatever
retention and compaction remove from the log.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.memory_cluster import Cluster
from tests.support.stepped_query import SteppedQuery

from pyspark_pykafka.errors import DataLossError, OffsetsError
from pyspark_pykafka.offsets import END_TIMES, StreamOffset, TopicPartition
from pyspark_pykafka.source.checkpoint import _to_jvm_format

if TYPE_CHECKING:
    from collections.abc import Mapping

T0 = TopicPartition("t", 0)
END_MS = 5

at_an_end_time = pytest.mark.parametrize(
    "end_options",
    [
        {"endingTimestamp": "5"},
        {"endingOffsetsByTimestamp": '{"t":{"0":5}}'},
        {"endingOffsets": "1970-01-01T00:00:00.005Z"},
        {"endingOffsets": '{"t":"1970-01-01T00:00:00.005Z"}'},
        {"endingOffsets": '{"t":{"0":"1970-01-01T00:00:00.005Z"}}'},
    ],
    ids=["global", "by-partition", "position", "topic-position", "partition-position"],
)


class Log(Cluster):
    """
    A cluster with the topic t of one partition, whose records have these timestamps in ms.
    """

    def __init__(self, *times: int) -> None:
        super().__init__()
        self.create_topic("t", 0)
        self.times: list[int] = []
        self.append(*times)

    def append(self, *times: int) -> None:
        self.times += times
        self.topics["t"] = [(self.topics["t"][0][0], len(self.times))]

    def age_out(self, log_start: int | None = None) -> None:
        """
        Delete the records before an offset, or all, as retention does.
        """
        end = len(self.times)
        self.topics["t"] = [(end if log_start is None else log_start, end)]

    def offsets_for_times(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        log_start, end = self.topics["t"][0]
        return {
            tp: next((n for n in range(log_start, end) if self.times[n] >= time), None)
            for tp, time in times.items()
        }


class Query(SteppedQuery):
    """
    A query of the topic t from earliest; each step returns the offsets of its micro-batch.
    """

    def __post_init__(self) -> None:
        source = {
            "kafka.bootstrap.servers": "b:1",
            "subscribe": "t",
            "startingOffsets": "earliest",
            "fetchOffset.retryIntervalMs": "0",
        }
        self.options = {**source, **self.options}
        super().__post_init__()

    def step(self) -> list[int]:
        """
        Run one micro-batch if there is one, and return the offsets that it reads.
        """
        ranges = self.next_ranges()
        return [offset for r in ranges for offset in range(r.start, r.end)]

    def is_idle(self) -> bool:
        """
        Whether a trigger finds no new data, so that Spark runs no batch.
        """
        return self.position is not None and self.stream.latest_offset(self.position) == (
            self.position
        )


@at_an_end_time
@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
@pytest.mark.parametrize("log_start", [5, 7, None], ids=["at-the-end", "beyond", "empty"])
def test_a_stream_that_has_ended_stays_ended(
    end_options: dict[str, str], log_start: int | None, *, restarted: bool
) -> None:
    """
    After the end is reached, records that retention deletes after it cause neither a batch nor a
    data loss.
    """
    log = Log(1, 2, 3, 4, 9, 10)
    query = Query(log, {**end_options})

    assert query.step() == [0, 1, 2, 3]
    log.append(1, 2, 3, 12)
    log.age_out(log_start)
    if restarted:
        query.restart()
    assert query.is_idle()
    assert query.step() == []
    log.append(1, 2, 3)
    assert query.is_idle()
    assert query.stream.report_latest_offset() == {"t": {"0": 13}}


@at_an_end_time
def test_the_end_is_kept_in_the_checkpoint_without_new_records(
    end_options: dict[str, str],
) -> None:
    """
    If the first record at the end's time arrives alone, one batch without records keeps the end.
    """
    log = Log(1, 2, 3)
    query = Query(log, {**end_options})
    assert query.step() == [0, 1, 2]
    assert query.is_idle()
    log.append(9)

    assert not query.is_idle()
    assert query.step() == []
    assert query.is_idle()
    log.append(2)
    log.age_out()
    query.restart()
    assert query.is_idle()


def test_the_checkpoint_has_the_end_time_that_was_reached() -> None:
    """
    The time is kept by partition under a reserved key, and only once the end is reached.
    """
    log = Log(1, 2)
    query = Query(log, {"endingTimestamp": "5"})
    query.step()
    assert query.position is not None
    assert END_TIMES not in query.position

    log.append(9)
    query.step()

    assert query.position[END_TIMES] == {"t": {"0": 5}}


def test_a_limited_batch_before_the_end_has_not_reached_it() -> None:
    """
    The checkpoint has no end time after a batch that ends before the stream's end, at a limit.
    """
    log = Log(1, 2, 3, 4, 9)
    query = Query(log, {"endingTimestamp": "5", "maxOffsetsPerTrigger": "3"})

    assert query.step() == [0, 1, 2]
    assert query.position is not None
    assert END_TIMES not in query.position
    assert query.step() == [3]
    assert query.position[END_TIMES] == {"t": {"0": 5}}


def test_an_available_now_run_keeps_the_end() -> None:
    """
    A run with availableNow keeps the end that it has reached, and later runs find nothing.
    """
    log = Log(1, 2, 9)
    query = Query(log, {"endingTimestamp": "5"})
    query.stream.prepare_for_available_now()
    assert query.step() == [0, 1]

    log.age_out()
    query.restart()
    query.stream.prepare_for_available_now()
    assert query.is_idle()


@pytest.mark.parametrize("end_ms", ["3", "5"])
def test_an_end_that_is_not_later_is_reached_too(end_ms: str) -> None:
    """
    A restart with the same or an earlier end time finds nothing to read.
    """
    log = Log(1, 2, 4, 9)
    query = Query(log, {"endingTimestamp": "5"})
    query.step()
    log.append(1)
    log.age_out()

    query.restart(endingTimestamp=end_ms)

    assert query.is_idle()


def test_a_later_end_continues_the_stream() -> None:
    """
    A restart with a later end time reads on up to it, and one without an end reads all records.
    """
    log = Log(1, 2, 9, 3, 20)
    query = Query(log, {"endingTimestamp": "5"})
    assert query.step() == [0, 1]

    query.restart(endingTimestamp="15")
    assert query.step() == [2, 3]
    query.options.pop("endingTimestamp")
    query.restart()
    assert query.step() == [4]
    assert query.position is not None
    assert END_TIMES not in query.position


def test_the_former_end_of_a_stream_makes_no_batch() -> None:
    """
    A stream whose end was removed from the options, and that has no new records, has no batch.
    """
    query = Query(Log(1, 2, 9), {"endingTimestamp": "5"})
    query.step()
    query.restart(endingTimestamp="10")
    assert query.step() == [2]
    query.options.pop("endingTimestamp")
    query.restart()

    assert query.is_idle()


@pytest.mark.parametrize("end_option", ["endingTimestamp", "endingOffsets"])
def test_a_log_that_went_back_has_no_end_yet(end_option: str) -> None:
    """
    After an allowed loss of the log's last records, and after a topic is recreated, the new log is
    searched for its end.
    """
    log = Log(1, 2, 3, 9)
    end = {"endingTimestamp": "5", "endingOffsets": "1970-01-01T00:00:00.005Z"}[end_option]
    query = Query(log, {end_option: end, "failOnDataLoss": "false"})
    assert query.step() == [0, 1, 2]

    log.times = [1]
    log.append()
    assert query.step() == []
    log.append(2, 3, 4, 9)
    assert query.step() == [1, 2, 3]

    log.create_topic("t", 0)
    log.times = []
    log.append(1, 1)
    assert query.step() == [0, 1]
    log.append(1, 9)
    assert query.step() == [2]


def test_records_deleted_before_the_end_is_reached_are_data_loss() -> None:
    """
    Nothing shows which of the deleted records were before the end, so their loss is reported.
    """
    log = Log(1, 2)
    query = Query(log, {"endingTimestamp": "5", "failOnDataLoss": "false"})
    query.step()
    log.append(3, 4, 9, 10)
    log.age_out(3)

    assert query.step() == [2, 3]
    assert query.stream.report_latest_offset() == {"t": {"0": 6}, "@lost": {"t": {"0": 1}}}


def test_offsets_as_an_end_stay_the_end() -> None:
    """
    If the end is an offset, it does not move when the log's start passes it.
    """
    log = Log(1, 2, 3, 4)
    query = Query(log, {"endingOffsets": '{"t":{"0":2}}'})
    assert query.step() == [0, 1]
    log.age_out()

    query.restart()

    assert query.is_idle()


actions = st.lists(
    st.lists(st.integers(0, 9), min_size=1, max_size=4) | st.sampled_from(["age out", "restart"]),
    max_size=12,
)


@given(actions, st.sampled_from([None, "1", "2"]))
def test_any_log_is_read_up_to_its_first_record_at_the_end(
    steps: list[list[int] | str], limit: str | None
) -> None:
    """
    Whatever records are appended, and deleted after a query has seen them, exactly the records
    before the first record at the end's time are read, each once.
    """
    log = Log()
    limits = {} if limit is None else {"maxOffsetsPerTrigger": limit}
    query = Query(log, {"endingTimestamp": str(END_MS), **limits})
    read: list[int] = []
    for step in steps:
        if step == "age out":
            log.age_out()
        elif step == "restart":
            query.restart()
        else:
            log.append(*(int(time) for time in step))
        read += query.step()
        while not query.is_idle():
            read += query.step()

    times = log.times
    first = next((n for n, time in enumerate(times) if time >= END_MS), len(times))
    assert read == list(range(first))


def test_end_times_survive_the_checkpoint() -> None:
    """
    End times are read back from the JSON, and removed for the JVM connector.
    """
    offset = StreamOffset({T0: 7}, {"t": "id"}, end_times={T0: 5})
    text = json.dumps(offset.to_json())

    assert StreamOffset.from_json(json.loads(text)) == offset
    assert json.loads(_to_jvm_format(f"v1\n{{}}\n{text}").split("\n")[2]) == {"t": {"0": 7}}


@pytest.mark.parametrize("malformed", [5, [1], {"t": 3}, {"t": {"0": "x"}}])
def test_malformed_end_times_are_refused(malformed: object) -> None:
    """
    The error for malformed end times names their key.
    """
    with pytest.raises(OffsetsError, match=f"the checkpoint's {END_TIMES} is"):
        StreamOffset.from_json({"t": {"0": 3}, END_TIMES: malformed})


def test_a_checkpoint_without_end_times_is_accepted() -> None:
    """
    A stream continues from a checkpoint of an earlier version: it searches the log for its end.
    """
    log = Log(1, 2, 3, 9)
    query = Query(log, {"endingTimestamp": "5"}, {"t": {"0": 1}, "@topicIds": {"t": log.ids["t"]}})

    assert query.step() == [1, 2]
    assert query.is_idle()


def test_an_end_hides_no_log_that_ends_before_the_position() -> None:
    """
    A log that ends before the position of a stream that has ended is data loss.
    """
    log = Log(1, 2, 3, 9)
    query = Query(log, {"endingTimestamp": "5"})
    query.step()
    log.times = [1]
    log.append()

    with pytest.raises(DataLossError, match="t-0 was changed from 3 to 1"):
        query.step()
