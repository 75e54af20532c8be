"""
The log line of a plan, since Spark's own plan does not show the ranges.
"""

from __future__ import annotations

import logging

import pytest

from pyspark_pykafka.offsets import EARLIEST, LATEST, OffsetRange, TopicPartition
from pyspark_pykafka.source.filter_pushdown import Comparison, FilterPushdown
from pyspark_pykafka.source.plan_log import log_plan


def ranges(*limits: tuple[int, int]) -> list[OffsetRange]:
    """
    Return a range of each partition of ``t``.
    """
    return [OffsetRange(TopicPartition("t", index), *limit) for index, limit in enumerate(limits)]


@pytest.mark.parametrize(
    ("planned", "filters", "line"),
    [
        (
            ranges((0, 7), (3, 5)),
            (Comparison("offset", ">=", 3),),
            "reading t: at most 9 records in 2 ranges: t-0[0, 7), t-1[3, 5); filters: offset >= 3",
        ),
        (
            ranges((EARLIEST, LATEST)),
            (),
            "reading t: all records in 1 ranges: t-0[earliest, latest)",
        ),
        ([], (), "reading nothing: at most 0 records in 0 ranges: "),
    ],
)
def test_a_plan_is_one_line(
    planned: list[OffsetRange],
    filters: tuple[Comparison, ...],
    line: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """
    A plan is one line with its topics, records, ranges, and the filters that narrow them.
    """
    caplog.set_level(logging.INFO, "pyspark_pykafka")

    log_plan(planned, str(FilterPushdown(filters)))

    assert caplog.messages == [line]


def test_a_large_plan_is_shortened(caplog: pytest.LogCaptureFixture) -> None:
    """
    The line has ten ranges at most, and the number of the others.
    """
    caplog.set_level(logging.INFO, "pyspark_pykafka")

    log_plan(ranges(*[(0, 1)] * 5_000))

    (line,) = caplog.messages
    assert "at most 5000 records in 5000 ranges" in line
    assert line.endswith("t-9[0, 1) and 4990 more")
