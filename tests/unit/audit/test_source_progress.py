"""
What the progress of a query tells of the records that entered a micro-batch.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyspark_pykafka.audit.source_progress import SourceProgress, ranges_of, source_of
from pyspark_pykafka.errors import OffsetsError
from pyspark_pykafka.offsets import OffsetRange, TopicPartition
from pyspark_pykafka.options import SourceOptions, parse_stream_source

OURS = "org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStream@1580f720"


def options(**given: str) -> SourceOptions:
    """
    Return the options of a query that reads the topic "t", if they say nothing else.
    """
    return parse_stream_source({"kafka.bootstrap.servers": "b:1", "subscribe": "t", **given})


def source(start: Any, end: Any, description: str = OURS) -> SourceProgress:
    """
    Return a source that went from one offset document to another.
    """
    return SourceProgress(description, json.dumps(start), json.dumps(end), 0)


def spans(progress: SourceProgress, read: SourceOptions | None = None) -> list[str]:
    """
    Return the ranges that entered as text.
    """
    return [str(each) for each in ranges_of(progress, read or options())]


def test_a_batch_lies_between_its_offsets() -> None:
    """
    Partitions without new offsets are left out, and a range knows its topic's id.
    """
    ids = {"@topicIds": {"t": "one"}}
    start, end = {"t": {"0": 3, "1": 4}, **ids}, {"t": {"0": 5, "1": 4}, **ids}

    assert ranges_of(source(start, end), options()) == (
        OffsetRange(TopicPartition("t", 0), 3, 5, "one"),
    )


def test_the_first_batch_starts_where_its_end_says() -> None:
    """
    Spark tells no start of it; the start that stands in its own end counts no further.
    """
    end = {"t": {"0": 9}, "@initial": {"t": {"0": 7}}}

    assert spans(source(None, end)) == ["t-0[7, 9)"]
    assert spans(SourceProgress(OURS, "None", json.dumps(end), 2)) == ["t-0[7, 9)"]
    assert spans(source(end, {"t": {"0": 12}})) == ["t-0[9, 12)"]


def test_a_first_batch_of_which_nothing_tells_the_start() -> None:
    """
    The JVM connector planned it.
    """
    with pytest.raises(OffsetsError, match="does not tell where the query's first batch started"):
        ranges_of(source(None, {"t": {"0": 9}}), options())


def test_partitions_that_were_added() -> None:
    """
    From 0, or from their end where the options say so.
    """
    progress = source({"t": {"0": 1}}, {"t": {"0": 2, "1": 5}})

    assert spans(progress) == ["t-0[1, 2)", "t-1[0, 5)"]
    assert spans(progress, options(newPartitionOffsets="latest")) == ["t-0[1, 2)"]


def test_a_topic_that_was_made_again() -> None:
    """
    The new one is read from its start.
    """
    start = {"t": {"0": 40}, "@topicIds": {"t": "one"}}
    end = {"t": {"0": 5}, "@topicIds": {"t": "two"}}

    assert spans(source(start, end)) == ["t-0[0, 5)"]


@pytest.mark.parametrize(
    ("given", "fits"),
    [
        ({"subscribe": "t"}, True),
        ({"subscribe": "t,u"}, True),
        ({"subscribe": "u"}, False),
        ({"subscribe": "", "subscribePattern": "^t"}, True),
        ({"subscribe": "", "subscribePattern": "^u"}, False),
        ({"subscribe": "", "assign": '{"t": [0, 1]}'}, True),
        ({"subscribe": "", "assign": '{"t": [1]}'}, False),
    ],
)
def test_the_source_that_has_the_options(given: dict[str, str], fits: bool) -> None:
    """
    Is told from others by the partitions that it reads, not by those that it could read.
    """
    wanted = parse_stream_source(
        {"kafka.bootstrap.servers": "b:1", **{name: text for name, text in given.items() if text}}
    )
    one = source({"t": {"0": 1}}, {"t": {"0": 2}})
    others = [
        source(3, 4, "RateStreamV2"),
        source(None, None),
        SourceProgress(OURS, "None", "None", 0),
        SourceProgress("LongOffsets", "3", "4", 0),
        source({"v": 3}, {"v": 4}, "FileStreamSource"),
        source({"t": {"0": 1}}, {"t": {"0": 2}}, "KafkaV2[Subscribe[t]]"),
    ]

    if fits:
        assert source_of([*others, one], wanted) is one
    else:
        with pytest.raises(OffsetsError, match="the query has no source that may be the one"):
            source_of([*others, one], wanted)


def test_two_sources_that_may_be_meant() -> None:
    """
    Are not guessed at.
    """
    one = source({"t": {"0": 1}}, {"t": {"0": 2}})

    with pytest.raises(OffsetsError, match="the query has 2 sources that may be the one"):
        source_of([one, one], options())
