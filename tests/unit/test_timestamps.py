"""
Kafka's timestamps as text for people.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_pykafka.timestamps import format_timestamp

_INT64 = st.integers(-(2**63), 2**63 - 1)


@given(_INT64)
def test_every_timestamp_has_a_text(millis: int) -> None:
    """
    Any 64-bit number is either the exact UTC time or the number itself.
    """
    text = format_timestamp(millis, "milliseconds")

    if text.endswith(" ms since 1970"):
        assert int(text.split()[0]) == millis
        assert not -62_135_596_800_000 <= millis < 253_402_300_800_000
    else:
        since = datetime.fromisoformat(text) - datetime(1970, 1, 1, tzinfo=UTC)
        assert since == timedelta(milliseconds=millis)


@pytest.mark.parametrize(
    ("millis", "text"),
    [
        (0, "1970-01-01T00:00:00+00:00"),
        (-1, "1969-12-31T23:59:59+00:00"),
        (1_700_000_000_999, "2023-11-14T22:13:20+00:00"),
        (-62_135_596_800_000, "0001-01-01T00:00:00+00:00"),
        (-62_135_596_800_001, "-62135596800001 ms since 1970"),
        (253_402_300_799_999, "9999-12-31T23:59:59+00:00"),
        (253_402_300_800_000, "253402300800000 ms since 1970"),
        (2**62, "4611686018427387904 ms since 1970"),
        (-(2**63), "-9223372036854775808 ms since 1970"),
    ],
)
def test_times_outside_the_calendar_are_numbers(millis: int, text: str) -> None:
    """
    Years 1 to 9999 are shown as times, and all other timestamps as milliseconds.
    """
    assert format_timestamp(millis) == text
