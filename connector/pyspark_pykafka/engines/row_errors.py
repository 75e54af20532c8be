"""
What is said of a row that cannot become a record, by either engine.
"""

from __future__ import annotations

from pyspark_pykafka.errors import RecordError

_SHOWN_BYTES = 64

#: Brokers refuse negative times, and librdkafka takes 0 for "now".
FIRST_TIME_US = 1_000


def describe_row(topic: str, key: bytes | None, partition: int | None = None) -> str:
    """
    Return where the row was to go, for messages; the value is the user's data and stays out.
    """
    where = "" if partition is None else f", partition {partition}"
    return f"the record with key {format_key(key)} for topic '{topic}'{where}"


def format_key(key: bytes | None) -> str:
    """
    Return a key as messages show it: its first bytes, if there are many.
    """
    return repr(key if key is None or len(key) <= _SHOWN_BYTES else key[:_SHOWN_BYTES] + b"...")


def null_topic(row: int, key: bytes | None) -> RecordError:
    """
    Return the error for a row of a batch without a destination.
    """
    msg = (
        f"null topic present in the data: row {row} of a batch, with key {format_key(key)}. Use "
        "the option 'topic' for setting one topic for all, or filter such rows out"
    )
    return RecordError("KAFKA_NULL_TOPIC_IN_DATA", msg)


def ledger_row(where: str) -> RecordError:
    """
    Return the error for a row whose topic is the ledger of the stream that writes it.
    """
    msg = (
        f"{where} cannot be written: that topic is the ledger of this query, whose entries tell "
        "what is committed. Correct the option or column 'topic', or give the query another "
        "transactionalIdPrefix: its ledger is the topic of that name with '-ledger' behind it"
    )
    return RecordError("EXACTLY_ONCE_ROW_FOR_LEDGER", msg)


def unknown_partition(where: str, partitions: int) -> RecordError:
    """
    Return the error for a row whose partition its topic does not have.
    """
    msg = f"{where} cannot be written: the topic has the partitions 0 to {partitions - 1}"
    return RecordError("UNKNOWN_PARTITION", msg)


def timestamp_too_early() -> RecordError:
    """
    Return the error for a time that brokers would refuse.
    """
    msg = (
        "the column 'timestamp' holds a time before 1970-01-01 00:00:00.001 UTC; it must be "
        "later, or null for the time of writing"
    )
    return RecordError("INVALID_TIMESTAMP", msg)


def null_header_key() -> RecordError:
    """
    Return the error for a header that has no key.
    """
    msg = "the column 'headers' holds a header without a key; a header of Kafka's has one"
    return RecordError("NULL_HEADER_KEY", msg)


def too_large(where: str, said: str) -> RecordError:
    """
    Return the error for a record that we or a broker find too large.
    """
    msg = (
        f"{where} cannot be written: {said}; raise kafka.max.request.size, and the topic's "
        "max.message.bytes, or write less"
    )
    return RecordError("MSG_SIZE_TOO_LARGE", msg)
