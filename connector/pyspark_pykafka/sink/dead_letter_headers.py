"""
The headers with the origin of a dead letter, and the reason why it was set aside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_pykafka.errors import error_text

if TYPE_CHECKING:
    from pyspark_pykafka.offsets import TopicPartition

#: Prefix of the connector's headers, which follow those of the record.
HEADER_PREFIX = "pykafka.deadletter."

_MAX_MESSAGE_LENGTH = 2_000

Header = dict[str, str | bytes | None]


def provenance_headers(
    tp: TopicPartition,
    offset: int,
    timestamp_ms: int | None,
    error: BaseException,
    *,
    batch: int,
    attempts: int,
) -> list[Header]:
    """
    Return the headers of a dead letter, as rows of the column ``headers``.

    ``batch`` is the micro-batch in which the record failed, or -1; ``attempts`` is how often it
    failed when it was processed alone.
    """
    provenance = {
        "topic": tp.topic,
        "partition": tp.partition,
        "offset": offset,
        "timestamp": timestamp_ms,
        "batch": batch,
        "error.class": f"{type(error).__module__}.{type(error).__qualname__}",
        "error.message": error_text(error)[:_MAX_MESSAGE_LENGTH],
        "attempts": attempts,
    }
    # An error that quotes a record may contain surrogates, for example from the JSON text "\ud800".
    return [
        {"key": HEADER_PREFIX + name, "value": str(text).encode(errors="backslashreplace")}
        for name, text in provenance.items()
    ]
