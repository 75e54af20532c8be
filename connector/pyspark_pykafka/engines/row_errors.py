"""
The errors for rows that cannot be written, on either engine.
"""

from __future__ import annotations

import pyarrow as pa

from pyspark_pykafka.errors import RecordError

_SHOWN_BYTES = 64

#: The first valid timestamp (1 ms): brokers reject negative ones, and for librdkafka 0 means the
#: current time.
MIN_TIMESTAMP_US = 1_000


def bytes_at(column: pa.Array, row: int) -> bytes | None:
    """
    Return the bytes of a row's string. They need not be valid UTF-8: Spark does not check them.
    """
    value: bytes | None = column.slice(row, 1).cast(pa.large_binary())[0].as_py()
    return value


def _first_undecodable(strings: pa.Array) -> tuple[int, bytes]:
    for row, value in enumerate(strings.cast(pa.large_binary()).to_pylist()):
        if value is not None and value.decode(errors="replace").encode() != value:
            return row, value
    raise AssertionError("every string is UTF-8")


def describe_row(topic: str, key: bytes | None, partition: int | None = None) -> str:
    """
    Return a description of a row for messages, without its value, which may be confidential.
    """
    where = "" if partition is None else f", partition {partition}"
    return f"the record with key {format_key(key)} for topic '{topic}'{where}"


def format_key(key: bytes | None) -> str:
    """
    Return a key for messages; a long one is cut off.
    """
    return repr(key if key is None or len(key) <= _SHOWN_BYTES else key[:_SHOWN_BYTES] + b"...")


def null_topic_error(row: int, key: bytes | None) -> RecordError:
    """
    Return the error for a row without a topic.
    """
    msg = (
        f"null topic present in the data: row {row} of a batch, with key {format_key(key)}. Set "
        "the option 'topic' to write all rows to one topic, or filter such rows out"
    )
    return RecordError("KAFKA_NULL_TOPIC_IN_DATA", msg)


def undecodable_topic_error(topics: pa.Array, keys: pa.Array | None) -> RecordError:
    """
    Return the error for the first row of a batch whose topic is not valid UTF-8.
    """
    row, topic = _first_undecodable(topics)
    key = None if keys is None else bytes_at(keys, row)
    msg = (
        f"the topic {format_key(topic)} is not UTF-8: row {row} of a batch, with key "
        f"{format_key(key)}. Correct the column 'topic', or set the option 'topic'"
    )
    return RecordError("INVALID_TOPIC", msg)


def undecodable_header_key_error(headers: pa.ListArray) -> RecordError:
    """
    Return the error for a batch with a header whose key librdkafka cannot write.
    """
    _, key = _first_undecodable(headers.flatten().field(0))
    msg = (
        f"the column 'headers' has the header key {format_key(key)}, which is not UTF-8; only the "
        "engine 'wire' can write it. Correct the key, or use that engine"
    )
    return RecordError("INVALID_HEADER_KEY", msg)


def ledger_row_error(where: str) -> RecordError:
    """
    Return the error for a row whose topic is the ledger of the query that writes it.
    """
    msg = (
        f"{where} cannot be written: that topic is the ledger of this query, which records what "
        "is committed. Correct the option or column 'topic', or give the query another "
        "transactionalIdPrefix: its ledger is the topic <prefix>-ledger"
    )
    return RecordError("EXACTLY_ONCE_ROW_FOR_LEDGER", msg)


def unknown_partition_error(where: str, partitions: int) -> RecordError:
    """
    Return the error for a row with a partition that the topic does not have.
    """
    msg = f"{where} cannot be written: the topic has the partitions 0 to {partitions - 1}"
    return RecordError("UNKNOWN_PARTITION", msg)


def early_timestamp_error() -> RecordError:
    """
    Return the error for a timestamp that brokers would reject.
    """
    msg = (
        "the column 'timestamp' has a time before 1970-01-01 00:00:00.001 UTC, the first "
        "valid time; correct it, or use null for the time of writing"
    )
    return RecordError("INVALID_TIMESTAMP", msg)


def null_header_key_error() -> RecordError:
    """
    Return the error for a header without a key.
    """
    msg = "the column 'headers' has a header without a key; a Kafka header must have one"
    return RecordError("NULL_HEADER_KEY", msg)


def too_large_error(where: str, reason: str) -> RecordError:
    """
    Return the error for a record that is too large for the connector or a broker.
    """
    msg = (
        f"{where} cannot be written: {reason}; raise kafka.max.request.size, and the topic's "
        "max.message.bytes, or write smaller records"
    )
    return RecordError("MSG_SIZE_TOO_LARGE", msg)
