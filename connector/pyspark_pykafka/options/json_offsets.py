"""
Reading the JSON documents of options: partitions, offsets and timestamps by topic.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from pyspark_pykafka.offsets import EARLIEST, LATEST, TopicPartition
from pyspark_pykafka.options.value_parsers import InvalidOptionError, Parser, topic_name
from pyspark_pykafka.options.values import (
    Assign,
    Committed,
    Earliest,
    Latest,
    SpecificOffsets,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_MAX_LONG = 2**63 - 1
_MAX_PARTITION = 2**31 - 1
_NUMBER = re.compile(r"[0-9]{1,10}")
_WORDS = {"earliest": EARLIEST, "latest": LATEST}

Timestamps = tuple[tuple[TopicPartition, int], ...]


def _read_partitions(text: str) -> Assign:
    found: set[TopicPartition] = set()
    for topic, numbers in _document(text).items():
        if not isinstance(numbers, list) or not numbers:
            raise ValueError(text)
        found |= {TopicPartition(topic_name(topic), _partition(number)) for number in numbers}
    if not found:
        raise ValueError(text)
    return Assign(tuple(sorted(found)))


def _read_offsets(text: str) -> Earliest | Latest | SpecificOffsets:
    word = text.strip().lower()
    if word in _WORDS:
        return Earliest() if word == "earliest" else Latest()
    document = _document(text)
    topics = {topic_name(topic): w for topic, given in document.items() if (w := _word(given))}
    found = dict(_by_partition({t: given for t, given in document.items() if t not in topics}))
    for tp, offset in found.items():
        if offset < EARLIEST:
            msg = (
                f"the offset of {tp} is {offset}; it must be: at least 0, "
                f"or {EARLIEST} for earliest, or {LATEST} for latest"
            )
            raise InvalidOptionError(msg)
    return SpecificOffsets(tuple(sorted(found.items())), tuple(sorted(topics.items())))


def _word(given: object) -> int | None:
    return _WORDS.get(given.strip().lower()) if isinstance(given, str) else None


def _read_start(text: str) -> Committed | Earliest | Latest | SpecificOffsets:
    return Committed() if text.strip().lower() == "committed" else _read_offsets(text)


def _read_timestamps(text: str) -> Timestamps:
    found = dict(_by_partition(_document(text)))
    for tp, time in found.items():
        if time < 0:
            msg = f"the time of {tp} is {time}; it must be: milliseconds since 1970 UTC"
            raise InvalidOptionError(msg)
    return tuple(sorted(found.items()))


def _by_partition(document: Mapping[str, Any]) -> Iterator[tuple[TopicPartition, int]]:
    for topic, numbers in document.items():
        if not isinstance(numbers, dict):
            raise ValueError(topic)  # noqa: TRY004 - Parser turns ValueError into what is expected
        for partition, number in numbers.items():
            if not _NUMBER.fullmatch(partition):
                raise ValueError(partition)
            yield TopicPartition(topic_name(topic), _partition(int(partition))), _long(number)


def _document(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text, object_pairs_hook=_without_repetition)
    except RecursionError as cause:
        raise ValueError(text) from cause
    if not isinstance(document, dict):
        raise ValueError(text)  # noqa: TRY004 - as above
    return document


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = sorted({name for name in names if names.count(name) > 1})
        msg = f"it names {', '.join(twice)} more than once; give each topic and partition once"
        raise InvalidOptionError(msg)
    return found


def _partition(number: object) -> int:
    partition = _long(number)
    if not 0 <= partition <= _MAX_PARTITION:
        raise ValueError(number)
    return partition


def _long(number: object) -> int:
    # bool is an int in Python; JSON's true is no number.
    if not isinstance(number, int) or isinstance(number, bool) or abs(number) > _MAX_LONG:
        raise ValueError(number)
    return number


PARTITIONS = Parser(_read_partitions, 'a JSON object of partitions by topic, as {"orders":[0,1]}')
_OFFSETS_EXPECTED = (
    "earliest, latest, or a JSON object with an offset for each partition or a word for each "
    'topic, as {"orders":{"0":23,"1":-2},"clicks":"earliest"} (-2 is earliest, -1 is latest)'
)
OFFSETS = Parser(_read_offsets, _OFFSETS_EXPECTED)
START = Parser(_read_start, f"committed, {_OFFSETS_EXPECTED}")
TIMESTAMPS = Parser(
    _read_timestamps,
    "a JSON object with milliseconds since 1970 UTC for each partition, "
    'as {"orders":{"0":1700000000000}}',
)
