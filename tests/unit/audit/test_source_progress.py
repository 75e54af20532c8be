"""
The offset ranges of a micro-batch, from the query's progress.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.progress_events import progress

from pyspark_pykafka.audit.source_progress import (
    SourceProgress,
    find_source,
    offset_ranges,
    parse_sources,
)
from pyspark_pykafka.errors import OffsetsError
from pyspark_pykafka.offsets import OffsetRange, TopicPartition, offset_document
from pyspark_pykafka.options import SourceOptions, parse_stream_source

OURS = "org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStream@1580f720"


def options(**source_options: str) -> SourceOptions:
    """
    Return the options of a query that reads the topic "t", unless they name another one.
    """
    return parse_stream_source(
        {"kafka.bootstrap.servers": "b:1", "subscribe": "t", **source_options}
    )


def source(start: Any, end: Any, description: str = OURS) -> SourceProgress:
    """
    Return the progress of a source from one offset document to another.
    """
    return SourceProgress(description, offset_document(start), offset_document(end), 0)


def spans(batch: SourceProgress, read_options: SourceOptions | None = None) -> list[str]:
    """
    Return the offset ranges as text.
    """
    return [str(r) for r in offset_ranges(batch, read_options or options())]


def test_sources_are_parsed_from_the_report() -> None:
    """
    Spark's report holds offset documents as objects, and other sources' offsets as any JSON.
    """
    report = progress({"t": {"0": 5}}, start={"t": {"0": 3}}, rows=2)
    other = progress("7")

    assert parse_sources(report) == [
        SourceProgress("PythonMicroBatchStream", {"t": {"0": 3}}, {"t": {"0": 5}}, 2)
    ]
    assert [(source.start, source.end) for source in parse_sources(other)] == [(None, None)]


def test_ranges_are_those_between_the_offsets() -> None:
    """
    Partitions without new offsets are left out, and a range has its topic's id.
    """
    ids = {"@topicIds": {"t": "one"}}
    start, end = {"t": {"0": 3, "1": 4}, **ids}, {"t": {"0": 5, "1": 4}, **ids}

    assert offset_ranges(source(start, end), options()) == (
        OffsetRange(TopicPartition("t", 0), 3, 5, "one"),
    )


def test_start_of_the_first_batch_is_read_from_its_end() -> None:
    """
    Spark reports no start for the first batch; later batches ignore the stored initial offset.
    """
    end = {"t": {"0": 9}, "@initial": {"t": {"0": 7}}}

    assert spans(source(None, end)) == ["t-0[7, 9)"]
    assert spans(source(end, {"t": {"0": 12}})) == ["t-0[9, 12)"]


def test_unknown_start_of_the_first_batch_is_an_error() -> None:
    """
    A first batch planned by the JVM connector has no start in its end offset.
    """
    with pytest.raises(OffsetsError, match="the start of the query's first batch is unknown"):
        offset_ranges(source(None, {"t": {"0": 9}}), options())


def test_added_partitions() -> None:
    """
    Added partitions start at 0, or at their end with newPartitionOffsets=latest.
    """
    batch = source({"t": {"0": 1}}, {"t": {"0": 2, "1": 5}})

    assert spans(batch) == ["t-0[1, 2)", "t-1[0, 5)"]
    assert spans(batch, options(newPartitionOffsets="latest")) == ["t-0[1, 2)"]


def test_recreated_topic() -> None:
    """
    The range of a recreated topic starts at offset 0.
    """
    start = {"t": {"0": 40}, "@topicIds": {"t": "one"}}
    end = {"t": {"0": 5}, "@topicIds": {"t": "two"}}

    assert spans(source(start, end)) == ["t-0[0, 5)"]


@pytest.mark.parametrize(
    ("subscription", "fits"),
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
def test_source_is_found_by_its_partitions(subscription: dict[str, str], fits: bool) -> None:
    """
    The source of the options is found by the partitions that it reads, among any other sources.
    """
    auditor_options = parse_stream_source(
        {
            "kafka.bootstrap.servers": "b:1",
            **{name: text for name, text in subscription.items() if text},
        }
    )
    expected = source({"t": {"0": 1}}, {"t": {"0": 2}})
    others = [
        source(3, 4, "RateStreamV2"),
        source(None, None),
        source("None", "None"),
        source("3", "4", "LongOffsets"),
        source({"v": 3}, {"v": 4}, "FileStreamSource"),
        source({"t": {"0": 1}}, {"t": {"0": 2}}, "KafkaV2[Subscribe[t]]"),
    ]

    if fits:
        assert find_source([*others, expected], auditor_options) is expected
    else:
        with pytest.raises(OffsetsError, match="the query has no source that may have the auditor"):
            find_source([*others, expected], auditor_options)


def test_ambiguous_source_is_refused() -> None:
    """
    If two sources match the auditor's options, the audit fails instead of guessing.
    """
    ambiguous = source({"t": {"0": 1}}, {"t": {"0": 2}})

    with pytest.raises(OffsetsError, match="the query has 2 sources that may have the auditor"):
        find_source([ambiguous, ambiguous], options())
