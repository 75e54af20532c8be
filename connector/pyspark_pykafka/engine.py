"""
What every engine of the data plane is asked for, and answers.

An engine reads one :class:`~pyspark_pykafka.offsets.OffsetRange` into Arrow batches, and writes
Arrow batches as records. All engines give equal tables for equal ranges.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_pykafka.settings import KafkaSettings

#: A batch handed to Spark is closed at the first of these; both bound what a worker holds.
BATCH_RECORDS = 10_000
BATCH_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """
    How to read ranges: crosses from the driver to the executors with every task.

    ``poll_timeout_ms`` bounds each wait without progress; ``end_retries`` and ``end_retry_ms``
    say how often, and how far apart, a log that ends too early is asked again (a new leader's
    high watermark may lag behind for a moment, KAFKA-7703).
    """

    kafka: KafkaSettings
    schema: pa.Schema
    group_id: str
    isolation_level: str
    poll_timeout_ms: int
    fail_on_data_loss: bool
    end_retries: int
    end_retry_ms: int
