"""
Parses positions in a log as people write them: ``-10 minutes``, ``-100``, a time with a zone.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from pyspark_pykafka.options.offset_values import AtTime, LastOffsets, Position, TimeAgo
from pyspark_pykafka.options.value_parsers import InvalidOptionError

_BACK = re.compile(r"-\s*(?P<count>[0-9]{1,18})\s*(?P<unit>[a-z]*)")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_OFFSET_UNITS = frozenset({"offset", "offsets", "record", "records"})
_SECOND = 1_000
_UNIT_MS = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "second", "seconds"), _SECOND),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60 * _SECOND),
    **dict.fromkeys(("h", "hour", "hours"), 3_600 * _SECOND),
    **dict.fromkeys(("d", "day", "days"), 86_400 * _SECOND),
    **dict.fromkeys(("w", "week", "weeks"), 7 * 86_400 * _SECOND),
}
# Kafka's numbers for earliest and latest.
_AMBIGUOUS = {"1": "latest", "2": "earliest"}
#: The time of the timestamp 0.
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)

#: The forms of a position, for messages.
POSITION_FORMS = (
    "a time relative to now (-10 minutes), the last offsets of each partition (-100), "
    "a time with a zone (2026-11-24T08:00:00+01:00)"
)


def read_position(text: str) -> Position:
    """
    Return a position.

    Raises ValueError if the text has none of the forms of a position, and InvalidOptionError with
    the reason if it has one but is invalid.
    """
    word = text.strip()
    if _TIME.match(word):
        return AtTime(_read_time(word))
    match = _BACK.fullmatch(word.lower())
    if match is None:
        raise ValueError(text)
    count, unit = int(match["count"]), match["unit"]
    if not unit and match["count"] in _AMBIGUOUS:
        msg = (
            f"'-{count}' is ambiguous; it must be: {_AMBIGUOUS[match['count']]}, "
            f"or '-{count} offsets'"
        )
        raise InvalidOptionError(msg)
    if not unit or unit in _OFFSET_UNITS:
        return LastOffsets(count)
    if unit not in _UNIT_MS:
        units = "ms, s, m, h, d, w, or in words, such as minutes"
        msg = f"'{unit}' is not a unit of time; it must be one of: {units}"
        raise InvalidOptionError(msg)
    return TimeAgo(count * _UNIT_MS[unit])


def _read_time(text: str) -> int:
    try:
        time = datetime.fromisoformat(text)
    except ValueError as cause:
        msg = f"'{text}' is not a time; it must be as in 2026-11-24T08:00:00+01:00"
        raise InvalidOptionError(msg) from cause
    if time.tzinfo is None:
        msg = (
            f"the time '{text}' has no zone, and machines may have different ones; "
            "add one, such as Z or +01:00"
        )
        raise InvalidOptionError(msg)
    if time < EPOCH:
        msg = f"the time '{text}' is before 1970; it must be: 1970 or later"
        raise InvalidOptionError(msg)
    return first_millisecond(time)


def first_millisecond(time: datetime) -> int:
    """
    Return the first whole millisecond since 1970 at or after a time that has a zone.

    Kafka's timestamps are whole milliseconds. If the time were rounded down, a read that starts at
    the time could include a record from before it, and a read that ends there could omit one.
    """
    return -((EPOCH - time) // _MILLISECOND)
