"""
EARLIEST and LATEST of a range are replaced by the offsets of a log.
"""

from __future__ import annotations

import logging

import pytest

from pyspark_pykafka.engines.contract import Watermarks, resolve_range
from pyspark_pykafka.errors import DataLossError, OffsetsError
from pyspark_pykafka.offsets import EARLIEST, LATEST, OffsetRange, TopicPartition

LOG = Watermarks(150, 700)


def resolved(start: int, end: int, *, fail: bool = True) -> tuple[int, int]:
    requested = OffsetRange(TopicPartition("t", 0), start, end)
    result = resolve_range(requested, LOG, fail_on_data_loss=fail)
    return result.start, result.end


@pytest.mark.parametrize(
    ("limits", "offsets"),
    [
        ((EARLIEST, LATEST), (150, 700)),
        ((EARLIEST, 300), (150, 300)),
        ((EARLIEST, 150), (150, 150)),
        ((200, LATEST), (200, 700)),
        ((700, LATEST), (700, 700)),
    ],
)
def test_sentinels_become_offsets(limits: tuple[int, int], offsets: tuple[int, int]) -> None:
    """
    Offsets are kept, EARLIEST is the log's start, and LATEST its visible end.
    """
    assert resolved(*limits) == offsets


def test_a_log_that_starts_after_the_end_of_a_range(caplog: pytest.LogCaptureFixture) -> None:
    """
    Between the plan and the task of a split range, retention may delete all of a range from
    EARLIEST to an offset. That is data loss; without failOnDataLoss the range is empty.
    """
    with pytest.raises(DataLossError, match=r"t-0\[earliest, 100\): the log starts at offset 150"):
        resolved(EARLIEST, 100)

    assert resolved(EARLIEST, 100, fail=False) == (100, 100)
    ((_, level, text),) = caplog.record_tuples
    assert level == logging.WARNING
    assert "Up to 100 records from offset 0 on have aged out" in text


def test_a_log_that_had_no_record_of_a_range_when_it_was_planned() -> None:
    """
    A range that ends at the log start of its plan has lost nothing.
    """
    requested = OffsetRange(TopicPartition("t", 0), EARLIEST, 100, log_start=100)

    result = resolve_range(requested, LOG, fail_on_data_loss=True)

    assert result.size == 0


def test_a_start_beyond_latest() -> None:
    """
    A start beyond the log's end is an error, which names the two causes.
    """
    with pytest.raises(
        OffsetsError, match="at offset 900, beyond its end 700.*deleted and recreated"
    ):
        resolved(900, LATEST, fail=False)
