"""
Writes through an engine without Spark, and the records expected from them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pyspark_pykafka.engines.selection import produce
from pyspark_pykafka.schema import HEADERS, TIMESTAMP
from pyspark_pykafka.settings import KafkaSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark_pykafka.testing import Record

ROWS = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("partition", pa.int32()),
        ("timestamp", TIMESTAMP),
        ("headers", HEADERS),
    ]
)


def settings(bootstrap: str, **kafka: str | int) -> KafkaSettings:
    """
    Return a writer's settings; keywords are Kafka's, with underscores for dots.
    """
    options = {name.replace("_", "."): str(value) for name, value in kafka.items()}
    return KafkaSettings.of({"bootstrap.servers": bootstrap, **options})


def write(
    bootstrap: str,
    batches: Iterable[pa.RecordBatch],
    topic: str | None,
    engine: str = "wire",
    **kafka: str | int,
) -> int:
    """
    Write batches with one call of an engine, and return the number of rows that it reports.
    """
    return produce(batches, settings(bootstrap, **kafka), topic, engine)


def batch_of(records: Sequence[Record], **extra_columns: Any) -> pa.RecordBatch:
    """
    Return records as the rows of a batch; keywords are further columns.
    """
    columns = {
        "key": [r.key for r in records],
        "value": [r.value for r in records],
        "partition": [r.partition for r in records],
        "timestamp": [None if r.timestamp is None else 1000 * r.timestamp for r in records],
        "headers": [
            [{"key": k, "value": v} for k, v in r.headers] if r.headers else None for r in records
        ],
    }
    arrays = [pa.array(columns[field.name], field.type) for field in ROWS]
    return pa.RecordBatch.from_arrays(
        [*arrays, *map(pa.array, extra_columns.values())],
        names=[*ROWS.names, *extra_columns],
    )


def placed(records: Iterable[Record]) -> list[Record]:
    """
    Return records with their offsets, as they are stored in a topic that was empty before.
    """
    counts: Counter[int | None] = Counter()
    stored = []
    for record in records:
        stored.append(replace(record, offset=counts[record.partition]))
        counts[record.partition] += 1
    return sorted(stored, key=lambda record: (record.partition or 0, record.offset or 0))
