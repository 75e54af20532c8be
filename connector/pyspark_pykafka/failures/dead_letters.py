"""
Dead-letter topics: failed records with their key, value and headers, and the reason in headers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pyspark_pykafka.engines.selection import check_topic, fetch
from pyspark_pykafka.errors import DataLossError, OptionsError
from pyspark_pykafka.offsets import OffsetRange, TopicPartition
from pyspark_pykafka.options import Subscribe, parse_sink, parse_stream_source
from pyspark_pykafka.options.parse import dead_letter_loop_mistake, selects
from pyspark_pykafka.progress.store import position_in_log
from pyspark_pykafka.schema import HEADERS, SOURCE_TYPES, TIMESTAMP_MS
from pyspark_pykafka.sink.dead_letter_headers import HEADER_PREFIX, provenance_headers
from pyspark_pykafka.source.factory import fetch_settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark_pykafka.engines.contract import FetchSettings
    from pyspark_pykafka.failures.bisection import FailedRecord
    from pyspark_pykafka.options import SourceOptions
    from pyspark_pykafka.progress.store import Records
    from pyspark_pykafka.source.end_offsets import PartitionLookup

#: The headers that are numbers, of 32 and 64 bits. Any producer may write other values.
_POSITION = {"partition": re.compile("[0-9]{1,9}"), "offset": re.compile("[0-9]{1,18}")}

_TOPIC_OPTIONS = frozenset({"assign", "subscribe", "subscribepattern"})

#: The options for the largest request, in lower case.
_REQUEST_SIZES = frozenset({"kafka.max.request.size", "kafka.message.max.bytes"})
#: A dead letter is larger than its record, which may already have the largest size that its own
#: topic allows. So the producer's limit is high, and the dead-letter topic's limit decides. The
#: brokers' socket.request.max.bytes is higher.
_REQUEST_SIZE = {"kafka.max.request.size": str(64 << 20)}

_READ_SCHEMA = pa.schema(
    [
        (name, TIMESTAMP_MS if name == "timestamp" else kind)
        for name, kind in SOURCE_TYPES.items()
        if name != "timestampType"
    ]
)
_DEAD_LETTER_SCHEMA = pa.schema(
    [("key", pa.binary()), ("value", pa.binary()), ("headers", HEADERS)]
)
_REPLAY_SCHEMA = pa.schema(
    [("topic", pa.string()), ("partition", pa.int32()), *_DEAD_LETTER_SCHEMA]
)

Row = dict[str, Any]


class DeadLetterTopic:
    """
    Writes failed records to a dead-letter topic, for :func:`isolate_poison`.

    Each record is read again from its source topic with ``options``: those of the query's
    ``readStream``, or the ``kafka.*`` options alone, such as brokers and login. If the dead-letter
    topic is on another cluster, ``kafka`` has the ``kafka.*`` options to write with. Delivery is at
    least once: if a batch fails after its failed records were written, they are written again.
    Raises :class:`~pyspark_pykafka.errors.OptionsError` for invalid options::

        dead_letters = DeadLetterTopic("orders-dead", options)
        frame.writeStream.foreachBatch(isolate_poison(process, dead_letters)).start()
    """

    def __init__(
        self, topic: str, options: Mapping[str, str], kafka: Mapping[str, str] | None = None
    ) -> None:
        source = _source_options(options)
        self._source = fetch_settings(source, _READ_SCHEMA)
        self._topic = topic
        # On another cluster a topic of the same name is another topic.
        self._is_same_cluster = kafka is None
        if kafka is None and _names_topics(options) and selects(source.strategy, topic):
            raise _loop_error(topic)
        kafka_options = _kafka_options(options) if kafka is None else kafka
        size = {} if _has_request_size(kafka_options) else _REQUEST_SIZE
        self._sink = parse_sink({**kafka_options, **size, "topic": topic}, streaming=False)

    def check(self) -> None:
        """
        Raise :class:`~pyspark_pykafka.errors.MissingTopicError` if the dead-letter topic is still
        missing after some seconds.
        """
        check_topic(self._sink.kafka, self._topic, "librdkafka")

    def __call__(self, records: Sequence[FailedRecord], batch_id: int) -> None:
        """
        Write the failed records of a batch; return once the brokers have acknowledged them.

        Raises :class:`~pyspark_pykafka.errors.DataLossError` if a record no longer exists and
        ``failOnDataLoss`` is true, and :class:`~pyspark_pykafka.errors.OptionsError` if a record
        comes from the dead-letter topic itself.
        """
        if self._is_same_cluster and any(record.tp.topic == self._topic for record in records):
            raise _loop_error(self._topic)
        # Not at the top: only a driver that sets records aside needs the producer.
        from pyspark_pykafka.engines.librdkafka.producer import produce

        rows = [
            _to_dead_letter(row, record, batch_id)
            for record in records
            for row in _read_source(record, self._source)
        ]
        batch = pa.RecordBatch.from_pylist(rows, schema=_DEAD_LETTER_SCHEMA)
        produce([batch], self._sink.kafka, self._sink.topic)


def _loop_error(topic: str) -> OptionsError:
    return OptionsError((dead_letter_loop_mistake(DeadLetterTopic.__name__, topic),))


def _names_topics(options: Mapping[str, str]) -> bool:
    return not _TOPIC_OPTIONS.isdisjoint(name.lower() for name in options)


def _has_request_size(options: Mapping[str, str]) -> bool:
    return not _REQUEST_SIZES.isdisjoint(name.lower() for name in options)


def _read_source(record: FailedRecord, settings: FetchSettings) -> Iterator[Row]:
    requested = OffsetRange(record.tp, record.offset, record.offset + 1)
    rows = [row for batch in fetch(requested, settings) for row in batch.to_pylist()]
    if not rows and settings.fail_on_data_loss:
        msg = (
            f"the record at {record.tp}, offset {record.offset}, cannot be set aside because it no "
            "longer exists; set failOnDataLoss to false to continue without it"
        )
        raise DataLossError("KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE", msg)
    yield from rows


def _to_dead_letter(row: Row, record: FailedRecord, batch_id: int) -> Row:
    added = provenance_headers(
        TopicPartition(row["topic"], row["partition"]),
        row["offset"],
        row["timestamp"],
        record.error,
        batch=batch_id,
        attempts=record.attempts,
    )
    headers = [*(row["headers"] or []), *added]
    return {"key": row["key"], "value": row["value"], "headers": headers}


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """
    A record of a dead-letter topic.

    ``tp`` and ``offset`` are its position in the dead-letter topic, ``source`` and
    ``source_offset`` its former position. ``reason`` has the values of the connector's headers, by
    their names without the prefix: ``topic``, ``partition``, ``offset``, ``timestamp``, ``batch``,
    ``error.class``, ``error.message`` and ``attempts``.
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
    Yield the dead letters in ranges of a topic, ignoring records that are not dead letters.

    ``settings`` must read all columns: see :func:`dead_letter_fetch_settings`.
    """
    for requested in ranges:
        for batch in fetch(requested, settings):
            for row in batch.to_pylist():
                letter = _from_row(row)
                if letter is not None:
                    yield letter


def unreplayed_ranges(lookup: PartitionLookup, topic: str, replayed: Records) -> list[OffsetRange]:
    """
    Return the ranges of a dead-letter topic whose records have not been replayed, in order.

    ``replayed`` records the end of the last replay, by partition. If the topic has been recreated
    since, none of its records has been replayed.
    """
    assigned = lookup.assignment(Subscribe((topic,)))
    topic_id = assigned.topic_ids.get(topic)
    log_starts = lookup.log_start_offsets(assigned.partitions)
    ends = lookup.end_offsets(assigned.partitions)
    ranges = []
    for tp, end in sorted(ends.items()):
        start = log_starts.get(tp, end)
        if tp in replayed:
            start = max(start, position_in_log(replayed[tp], topic_id, start))
        if start < end:
            ranges.append(OffsetRange(tp, start, end, topic_id))
    return ranges


def dead_letter_fetch_settings(options: Mapping[str, str]) -> FetchSettings:
    """
    Return the settings for reading single ranges, from options of ``readStream``.

    The options need no topics, since each range names its own.
    """
    return fetch_settings(_source_options(options), _READ_SCHEMA)


def _source_options(options: Mapping[str, str]) -> SourceOptions:
    topics = {} if _names_topics(options) else {"subscribePattern": "."}
    return parse_stream_source({**options, **topics, "includeHeaders": "true"})


def _from_row(row: Row) -> DeadLetter | None:
    headers = [(header["key"], header["value"]) for header in row["headers"] or []]
    reason = {
        name.removeprefix(HEADER_PREFIX): (value or b"").decode(errors="replace")
        for name, value in headers
        if name.startswith(HEADER_PREFIX)
    }
    is_placed = all(form.fullmatch(reason.get(name, "")) for name, form in _POSITION.items())
    if "topic" not in reason or not is_placed:
        return None
    original_headers = tuple(
        (name, value) for name, value in headers if not name.startswith(HEADER_PREFIX)
    )
    return DeadLetter(
        tp=TopicPartition(row["topic"], row["partition"]),
        offset=row["offset"],
        key=row["key"],
        value=row["value"],
        headers=original_headers or None,
        source=TopicPartition(reason["topic"], int(reason["partition"])),
        source_offset=int(reason["offset"]),
        reason=reason,
    )


def replay_dead_letters(
    letters: Sequence[DeadLetter], options: Mapping[str, str], topic: str | None = None
) -> None:
    """
    Write the original records to ``topic``; if it is None, each record to its source topic.

    In its source topic a record goes to its former partition, elsewhere to the partition of its
    key. Returns once the brokers have acknowledged all records.
    """
    from pyspark_pykafka.engines.librdkafka.producer import produce

    sink = parse_sink(
        {**_kafka_options(options), **({} if topic is None else {"topic": topic})}, streaming=False
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
    produce([pa.RecordBatch.from_pylist(rows, schema=_REPLAY_SCHEMA)], sink.kafka, sink.topic)


def _kafka_options(options: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in options.items() if name.lower().startswith("kafka.")}
