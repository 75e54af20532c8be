"""
Converts librdkafka's messages to Arrow, one function per column.
"""

from __future__ import annotations

from operator import methodcaller
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
)

from pyspark_pykafka.engines.contract import timestamp_error
from pyspark_pykafka.errors import RecordError
from pyspark_pykafka.offsets import TopicPartition
from pyspark_pykafka.schema import HEADERS, TIMESTAMP, TIMESTAMP_MS
from pyspark_pykafka.timestamps import NO_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from confluent_kafka import Message

# librdkafka numbers the types from 0, the Kafka protocol and the JVM connector from -1.
_TIMESTAMP_TYPES = {
    TIMESTAMP_NOT_AVAILABLE: -1,
    TIMESTAMP_CREATE_TIME: 0,
    TIMESTAMP_LOG_APPEND_TIME: 1,
}

# Spark's timestamps are microseconds in 64 bits; Kafka's are milliseconds in 64 bits.
_MAX_TIMESTAMP_MS = (2**63 - 1) // 1000


# If a key is not UTF-8, Message.headers() returns a list with a null pointer, and leaves an
# exception set. Python notices the exception only if the method is called in this way: a call
# written as ``message.headers()`` crashes the process once the interpreter has specialized it.
_call_headers = methodcaller("headers")


def to_batch(messages: Sequence[Message], schema: pa.Schema) -> pa.RecordBatch:
    """
    Return a batch of the schema's columns; other fields of the messages are not read.
    """
    arrays = [_COLUMNS[field.name](messages, field) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _bytes_or_text(values: list[bytes | None], field: pa.Field) -> pa.Array:
    array = pa.array(values, pa.binary())
    if field.type == pa.string():
        # Invalid UTF-8 is kept, as by CAST(... AS STRING): Spark's strings may hold it.
        options = pc.CastOptions(target_type=pa.string(), allow_invalid_utf8=True)
        return array.cast(options=options)
    return array


def _keys(messages: Sequence[Message], field: pa.Field) -> pa.Array:
    return _bytes_or_text([m.key() for m in messages], field)


def _values(messages: Sequence[Message], field: pa.Field) -> pa.Array:
    return _bytes_or_text([m.value() for m in messages], field)


def _topics(messages: Sequence[Message], field: pa.Field) -> pa.Array:
    return pa.array([m.topic() for m in messages], field.type)


def _partitions(messages: Sequence[Message], field: pa.Field) -> pa.Array:
    return pa.array([m.partition() for m in messages], field.type)


def _offsets(messages: Sequence[Message], field: pa.Field) -> pa.Array:
    return pa.array([m.offset() for m in messages], field.type)


def _timestamps(messages: Sequence[Message], field: pa.Field) -> pa.Array:
    times = [_timestamp_ms(message) for message in messages]
    if field.type == TIMESTAMP_MS:
        return pa.array(times, field.type)
    for message, millis in zip(messages, times, strict=True):
        if abs(millis) > _MAX_TIMESTAMP_MS:
            tp = TopicPartition(message.topic(), message.partition())
            raise timestamp_error(tp, message.offset(), millis)
    return pa.array([millis * 1000 for millis in times], pa.int64()).cast(TIMESTAMP)


def _timestamp_ms(message: Message) -> int:
    kind, millis = message.timestamp()
    # Records of magic 0 have no timestamp. librdkafka returns 0; we return -1, as Java does.
    return NO_TIMESTAMP if kind == TIMESTAMP_NOT_AVAILABLE else int(millis)


def _timestamp_types(messages: Sequence[Message], field: pa.Field) -> pa.Array:
    return pa.array([_TIMESTAMP_TYPES[m.timestamp()[0]] for m in messages], field.type)


def read_headers(message: Message) -> list[tuple[str, bytes | None]]:
    """
    Return the headers of a message; raise :class:`RecordError` if the key of one is not UTF-8.
    """
    try:
        headers: list[tuple[str, bytes | None]] | None = _call_headers(message)
    except SystemError as error:
        tp = TopicPartition(message.topic(), message.partition())
        msg = (
            f"cannot read the headers of {tp} at offset {message.offset()} with the engine "
            "librdkafka: the key of a header is not UTF-8; set engine to wire, which replaces the "
            "invalid bytes"
        )
        raise RecordError("KAFKA_MALFORMED_RECORD_HEADERS", msg) from error
    return headers or []


def _headers(messages: Sequence[Message], _field: pa.Field) -> pa.Array:
    rows = [
        [{"key": key, "value": value} for key, value in read_headers(message)] or None
        for message in messages
    ]
    return pa.array(rows, HEADERS)


_COLUMNS: dict[str, Callable[[Sequence[Message], pa.Field], pa.Array]] = {
    "key": _keys,
    "value": _values,
    "topic": _topics,
    "partition": _partitions,
    "offset": _offsets,
    "timestamp": _timestamps,
    "timestampType": _timestamp_types,
    "headers": _headers,
}
