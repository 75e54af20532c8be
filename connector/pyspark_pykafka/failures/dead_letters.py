"""
A topic for records that were set aside: key, value and headers as they were, and reason in headers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pyspark_pykafka.engines.selection import fetch
from pyspark_pykafka.errors import DataLossError
from pyspark_pykafka.offsets import OffsetRange, TopicPartition
from pyspark_pykafka.options import parse_sink, parse_stream_source
from pyspark_pykafka.schema import HEADERS, SOURCE_TYPES
from pyspark_pykafka.source.factory import fetch_settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark_pykafka.engines.contract import FetchSettings
    from pyspark_pykafka.failures.bisection import FailedRecord

#: What the names of our headers begin with; the record's own come before them.
HEADER_PREFIX = "pykafka.deadletter."

_LONGEST_MESSAGE = 2_000

_READ = pa.schema([(name, kind) for name, kind in SOURCE_TYPES.items() if name != "timestampType"])
_WRITTEN = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("headers", HEADERS)])
_SENT = pa.schema([("topic", pa.string()), ("partition", pa.int32()), *_WRITTEN])

Row = dict[str, Any]


class DeadLetterTopic:
    """
    Writes culprits to a topic, each read anew from where it lies.

    ``options`` are those of the query's ``readStream``; ``kafka`` has the client's settings, as
    ``kafka.*`` options, for a dead-letter topic on another cluster. At least once: a batch that
    fails after its culprits were written writes them again. Raises
    :class:`~pyspark_pykafka.errors.OptionsError` for options that are wrong.
    """

    def __init__(
        self, topic: str, options: Mapping[str, str], kafka: Mapping[str, str] | None = None
    ) -> None:
        self._source = dead_letter_fetch_settings(options)
        given = _of_the_client(options) if kafka is None else kafka
        self._sink = parse_sink({**given, "topic": topic}, streaming=False)

    def __call__(self, culprits: Sequence[FailedRecord], batch_id: int) -> None:
        """
        Write all culprits of a batch; returns when the brokers have acknowledged them.
        """
        # Not above: only a driver that sets records aside needs the producer.
        from pyspark_pykafka.engines.librdkafka.producer import produce

        rows = [
            _letter(row, culprit, batch_id)
            for culprit in culprits
            for row in _records(culprit, self._source)
        ]
        batch = pa.RecordBatch.from_pylist(rows, schema=_WRITTEN)
        produce([batch], self._sink.kafka, self._sink.topic)


def _records(culprit: FailedRecord, settings: FetchSettings) -> Iterator[Row]:
    wanted = OffsetRange(culprit.tp, culprit.offset, culprit.offset + 1)
    found = [row for batch in fetch(wanted, settings) for row in batch.to_pylist()]
    if not found and settings.fail_on_data_loss:
        msg = (
            f"the record at {culprit.tp}, offset {culprit.offset}, that was to be set aside is "
            "gone. Set failOnDataLoss to false to go on without it"
        )
        raise DataLossError("KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE", msg)
    yield from found


def _letter(row: Row, culprit: FailedRecord, batch_id: int) -> Row:
    error = culprit.error
    reason = {
        "topic": row["topic"],
        "partition": row["partition"],
        "offset": row["offset"],
        "timestamp": _millis(row["timestamp"]),
        "batch": batch_id,
        "error.class": f"{type(error).__module__}.{type(error).__qualname__}",
        "error.message": str(error)[:_LONGEST_MESSAGE],
        "attempts": culprit.attempts,
    }
    ours = [{"key": HEADER_PREFIX + name, "value": str(it).encode()} for name, it in reason.items()]
    headers = [*(row["headers"] or []), *ours]
    return {"key": row["key"], "value": row["value"], "headers": headers}


def _millis(timestamp: Any) -> int | None:
    return None if timestamp is None else round(timestamp.timestamp() * 1000)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """
    A record of a dead-letter topic: where it lies there, what it was, and reason it is there.
    """

    tp: TopicPartition
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] | None
    source: TopicPartition
    source_offset: int
    reason: Mapping[str, str]


def read_dead_letters(
    ranges: Iterable[OffsetRange], settings: FetchSettings
) -> Iterator[DeadLetter]:
    """
    Yield the dead letters in ranges of their topic; records of others that lie there are left out.

    ``settings`` must read all columns: see :func:`dead_letter_fetch_settings`.
    """
    for wanted in ranges:
        for batch in fetch(wanted, settings):
            for row in batch.to_pylist():
                letter = _read(row)
                if letter is not None:
                    yield letter


def dead_letter_fetch_settings(options: Mapping[str, str]) -> FetchSettings:
    """
    Return how to read a dead-letter topic, given options of ``readStream``.
    """
    return fetch_settings(parse_stream_source({**options, "includeHeaders": "true"}), _READ)


def _read(row: Row) -> DeadLetter | None:
    headers = [(header["key"], header["value"]) for header in row["headers"] or []]
    reason = {
        name.removeprefix(HEADER_PREFIX): (value or b"").decode(errors="replace")
        for name, value in headers
        if name.startswith(HEADER_PREFIX)
    }
    if not {"topic", "partition", "offset"} <= reason.keys():
        return None
    own = tuple((name, value) for name, value in headers if not name.startswith(HEADER_PREFIX))
    return DeadLetter(
        tp=TopicPartition(row["topic"], row["partition"]),
        offset=row["offset"],
        key=row["key"],
        value=row["value"],
        headers=own or None,
        source=TopicPartition(reason["topic"], int(reason["partition"])),
        source_offset=int(reason["offset"]),
        reason=reason,
    )


def replay_dead_letters(
    letters: Sequence[DeadLetter], options: Mapping[str, str], topic: str | None = None
) -> None:
    """
    Write records as they were, to the topic that is given or to where each comes from.

    In its former topic a record goes to its former partition, elsewhere to that of its key. Returns
    when the brokers have acknowledged all.
    """
    from pyspark_pykafka.engines.librdkafka.producer import produce

    sink = parse_sink(
        {**_of_the_client(options), **({} if topic is None else {"topic": topic})}, streaming=False
    )
    rows = [
        {
            "topic": letter.source.topic,
            "partition": letter.source.partition if topic in (None, letter.source.topic) else None,
            "key": letter.key,
            "value": letter.value,
            "headers": None
            if letter.headers is None
            else [{"key": name, "value": value} for name, value in letter.headers],
        }
        for letter in letters
    ]
    produce([pa.RecordBatch.from_pylist(rows, schema=_SENT)], sink.kafka, sink.topic)


def _of_the_client(options: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in options.items() if name.lower().startswith("kafka.")}
