"""
Kafka's timestamps as text for people.

They are milliseconds since 1970 in 64 bits, and producers may set any value. Python's dates end
with the year 9999, and Spark's timestamps at 2**63 microseconds.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

#: The timestamp of a record or of a transaction that has none.
NO_TIMESTAMP = -1

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def format_timestamp(milliseconds: int, timespec: str = "seconds") -> str:
    """
    Return a timestamp as ISO 8601 in UTC, or as a number if its year is not one of 1 to 9999.

    ``timespec`` is the precision, as in :meth:`datetime.isoformat`.
    """
    try:
        time = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return f"{milliseconds} ms since 1970"
    return time.isoformat(timespec=timespec)
