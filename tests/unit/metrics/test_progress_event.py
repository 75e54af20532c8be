"""
The values that are read from Spark's progress events.
"""

from __future__ import annotations

import json

import pytest
from tests.support.progress_events import NEW_BATCH, REPLAYED_BATCH, progress

from pyspark_pykafka.metrics.progress_event import error_line, error_name, parse_batch
from pyspark_pykafka.offsets import TopicPartition

TP = TopicPartition("t", 0)


def test_the_end_of_a_batch_is_not_taken_for_the_latest_offsets() -> None:
    """
    Before 4.2 Spark reports the end of the batch as its latest offset, which would hide the lag.
    """
    end = {"t": {"0": 7}, "@topicIds": {"t": "an-id"}}
    batch = parse_batch(progress(end, start={"t": {"0": 3}}, latest=end))
    (source,) = batch.sources

    assert (source.end, source.latest, source.lost) == ({TP: 7}, None, {})


def test_offsets_of_a_batch() -> None:
    """
    Start, end and latest offsets are read by partition, and lost offsets with the latest ones.
    """
    latest = {"t": {"0": 9}, "@lost": {"t": {"0": 2}}, "@losses": {"C": 1}}
    batch = parse_batch(progress({"t": {"0": 7}}, start={"t": {"0": 3}}, latest=latest))

    (source,) = batch.sources
    assert (source.start, source.end, source.latest) == ({TP: 3}, {TP: 7}, {TP: 9})
    assert source.lost == {TP: 2}
    assert source.losses == {"C": 1}
    assert (batch.query_id, batch.query_name, batch.batch_id) == ("q", "flights", 0)


def test_first_batch_starts_at_its_initial_offset() -> None:
    """
    Spark reports no start of a query's first batch; the batch's end offset holds it.
    """
    batch = parse_batch(progress({"t": {"0": 7}, "@initial": {"t": {"0": 4}}}))

    assert batch.sources[0].start == {TP: 4}


def test_offsets_as_json_text() -> None:
    """
    Offsets may come as JSON text, as Spark Connect and PySpark's own objects pass them.
    """
    batch = parse_batch(progress(json.dumps({"t": {"0": 7}})))

    assert batch.sources[0].end == {TP: 7}


@pytest.mark.parametrize(
    "end", [12, {"logOffset": 3}, "None", None, {}, {"t": {"0": float("inf")}}, {"@initial": 3}]
)
def test_other_sources_are_left_out(end: object) -> None:
    """
    A source whose offsets are not those of topics, such as files or rates, has no metrics here.
    """
    document = json.loads(progress({}))
    document["sources"][0]["endOffset"] = end

    assert parse_batch(json.dumps(document)).sources == ()


def test_reserved_keys_of_another_kind() -> None:
    """
    Offsets under reserved keys that are not objects count as missing.
    """
    batch = parse_batch(progress({"t": {"0": 7}, "@initial": 3}, latest={"t": 7, "@lost": [1]}))
    (source,) = batch.sources

    assert (source.start, source.end, source.latest, source.lost) == ({}, {TP: 7}, None, {})


def test_replayed_batch_is_one_that_this_run_did_not_plan() -> None:
    """
    Spark determines no end and writes no offset log for a batch that an earlier run has planned.
    """
    assert parse_batch(progress({}, phases=REPLAYED_BATCH)).was_planned_before
    assert not parse_batch(progress({}, phases=NEW_BATCH)).was_planned_before
    assert not parse_batch(progress({}, phases={})).was_planned_before


def test_time_since_planning() -> None:
    """
    The latest offsets were read when planning ended: before the rest of the trigger.
    """
    assert parse_batch(progress({})).seconds_since_planning == pytest.approx(1.2)


@pytest.mark.parametrize(
    ("text", "condition", "name"),
    [
        ("x\npyspark_pykafka.errors.DataLossError: [KAFKA_DATA_LOSS] 3", "C", "DataLossError"),
        ("[FOREACH_BATCH] failed", "FOREACH_BATCH", "FOREACH_BATCH"),
        ("org.apache.spark.SparkException: Job aborted", None, "SparkException"),
        ("java.lang.OutOfMemoryError", "", "OutOfMemoryError"),
        ("something else", None, "unknown"),
    ],
)
def test_error_name(text: str, condition: str | None, name: str) -> None:
    """
    An error is named by the connector's class, else by Spark's condition, else by its class.
    """
    assert error_name(text, condition) == name


TRACEBACK = 'Traceback (most recent call last):\n  File "job.py", line 3, in f\n    g()\n    ~^^\n'


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("org.X: no\n\tat org.X.run(X.scala:1)", "org.X: no"),
        (
            f"py4j.Py4JException: Message: {TRACEBACK}RuntimeError: no flights\n\n\tat py4j.P",
            "RuntimeError: no flights",
        ),
        (
            f"X: {TRACEBACK}KeyError: 7\n\nThe above\n\n{TRACEBACK}ValueError: no flight\nnumber 7",
            "ValueError: no flight",
        ),
        (f"org.X: failed: {TRACEBACK}", "org.X: failed: Traceback (most recent call last):"),
    ],
)
def test_line_of_an_error(text: str, line: str) -> None:
    """
    An error is shown by the exception that Python raised, where there is a traceback, else by its
    first line.
    """
    assert error_line(text) == line
