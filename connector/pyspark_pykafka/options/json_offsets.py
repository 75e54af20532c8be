"""
Parsers for options whose value is JSON: partitions, offsets and timestamps by topic.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark_pykafka.offsets import EARLIEST, LATEST, TopicPartition
from pyspark_pykafka.options.offset_values import (
    Committed,
    Earliest,
    Latest,
    Position,
    SpecificOffsets,
)
from pyspark_pykafka.options.positions import POSITION_FORMS, read_position
from pyspark_pykafka.options.value_parsers import InvalidOptionError, Parser, topic_name
from pyspark_pykafka.options.values import Assign

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

T = TypeVar("T")

_MAX_LONG = 2**63 - 1
_MAX_PARTITION = 2**31 - 1
_NUMBER = re.compile(r"[0-9]{1,10}")
_KEYWORDS = {"earliest": EARLIEST, "latest": LATEST}

Timestamps = tuple[tuple[TopicPartition, int], ...]


def _read_partitions(text: str) -> Assign:
    partitions: set[TopicPartition] = set()
    for topic, numbers in _document(text).items():
        if not isinstance(numbers, list) or not numbers:
            raise ValueError(text)
        partitions |= {TopicPartition(topic_name(topic), _partition(number)) for number in numbers}
    if not partitions:
        raise ValueError(text)
    return Assign(tuple(sorted(partitions)))


def _read_offsets(text: str) -> Earliest | Latest | SpecificOffsets | Position:
    if not text.strip().startswith("{"):
        return _read_global_position(text)
    document = _document(text)
    topics = {
        topic_name(topic): _read_topic_position(value)
        for topic, value in document.items()
        if isinstance(value, str)
    }
    rest = {topic: value for topic, value in document.items() if topic not in topics}
    offsets = dict(_by_partition(rest, _offset))
    return SpecificOffsets(tuple(sorted(offsets.items())), tuple(sorted(topics.items())))


def parse_position(text: str) -> int | Position:
    """
    Return an offset, EARLIEST, LATEST or a :data:`Position`; raise ValueError for anything else.
    """
    value = text.strip()
    try:
        if value.isdecimal() and value.isascii():
            return _long(int(value))
        return _read_topic_position(value)
    except InvalidOptionError:
        raise
    except ValueError as cause:
        msg = f"it must be: an offset, earliest, latest, {POSITION_FORMS}"
        raise InvalidOptionError(msg) from cause


def _read_global_position(text: str) -> Earliest | Latest | Position:
    keyword = text.strip().lower()
    if keyword in _KEYWORDS:
        return Earliest() if keyword == "earliest" else Latest()
    return read_position(text)


def _read_topic_position(text: str) -> int | Position:
    keyword = _KEYWORDS.get(text.strip().lower())
    return read_position(text) if keyword is None else keyword


def _offset(tp: TopicPartition, value: object) -> int | Position:
    if isinstance(value, str):
        return _read_topic_position(value)
    offset = _long(value)
    if offset < EARLIEST:
        msg = (
            f"the offset of {tp} is {offset}; it must be: at least 0, or {EARLIEST} for earliest, "
            f'or {LATEST} for latest, or "{offset}" in quotes for the last {-offset} offsets'
        )
        raise InvalidOptionError(msg)
    return offset


def _read_start(text: str) -> Committed | Earliest | Latest | SpecificOffsets | Position:
    return Committed() if text.strip().lower() == "committed" else _read_offsets(text)


def _read_timestamps(text: str) -> Timestamps:
    return tuple(sorted(_by_partition(_document(text), _timestamp)))


def _timestamp(tp: TopicPartition, value: object) -> int:
    time = _long(value)
    if time < 0:
        msg = f"the timestamp of {tp} is {time}; it must be: milliseconds since 1970 UTC"
        raise InvalidOptionError(msg)
    return time


def _by_partition(
    document: Mapping[str, Any], read: Callable[[TopicPartition, object], T]
) -> Iterator[tuple[TopicPartition, T]]:
    for topic, values in document.items():
        if not isinstance(values, dict):
            raise ValueError(topic)  # noqa: TRY004 - Parser turns a ValueError into its message
        for partition, value in values.items():
            if not _NUMBER.fullmatch(partition):
                raise ValueError(partition)
            tp = TopicPartition(topic_name(topic), _partition(int(partition)))
            yield tp, read(tp, value)


def _document(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text, object_pairs_hook=_without_duplicates)
    except RecursionError as cause:
        raise ValueError(text) from cause
    if not isinstance(document, dict):
        raise ValueError(text)  # noqa: TRY004 - as above
    return document


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        names = [name for name, _ in pairs]
        duplicates = sorted({name for name in names if names.count(name) > 1})
        msg = f"it has duplicate keys: {', '.join(duplicates)}; list each topic and partition once"
        raise InvalidOptionError(msg)
    return document


def _partition(number: object) -> int:
    partition = _long(number)
    if not 0 <= partition <= _MAX_PARTITION:
        raise ValueError(number)
    return partition


def _long(number: object) -> int:
    # bool is a subclass of int in Python, but JSON's true is not a number.
    if not isinstance(number, int) or isinstance(number, bool) or abs(number) > _MAX_LONG:
        raise ValueError(number)
    return number


PARTITIONS = Parser(
    _read_partitions, 'a JSON object of partitions by topic, such as {"orders":[0,1]}'
)
_OFFSETS_EXPECTED = (
    f"earliest, latest, {POSITION_FORMS}, or a JSON object of these by topic, or of these and "
    'offsets by partition, such as {"orders":{"0":23,"1":-2},"clicks":"-10 minutes"} '
    "(there -2 is earliest and -1 is latest)"
)
OFFSETS = Parser(_read_offsets, _OFFSETS_EXPECTED)
START = Parser(_read_start, f"committed, {_OFFSETS_EXPECTED}")
TIMESTAMPS = Parser(
    _read_timestamps,
    "a JSON object with milliseconds since 1970 UTC per partition, "
    'such as {"orders":{"0":1700000000000}}',
)
