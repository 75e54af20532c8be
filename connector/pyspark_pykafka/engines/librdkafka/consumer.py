"""
Reads one range of offsets through librdkafka's consumer into Arrow batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_pykafka.engines.client_pool import ClientPool
from pyspark_pykafka.engines.contract import FetchSettings, resolve_range
from pyspark_pykafka.engines.error_mapping import translating_errors
from pyspark_pykafka.engines.librdkafka.client import Client, request_watermarks
from pyspark_pykafka.engines.librdkafka.range_reader import RangeReader
from pyspark_pykafka.settings.librdkafka_config import consumer_config

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from pyspark_pykafka.offsets import OffsetRange

_pool: ClientPool[Client] = ClientPool(Client.close)


def fetch(requested: OffsetRange, settings: FetchSettings) -> Iterator[pa.RecordBatch]:
    """
    Yield the records of a range in offset order; ``earliest`` and ``latest`` are resolved first.

    Raises :class:`DataLossError` if records of the range are gone and ``fail_on_data_loss`` is set;
    otherwise logs the offsets that were skipped. Raises the other errors of
    :mod:`pyspark_pykafka.errors`.
    """
    config = consumer_config(
        settings.kafka, group_id=settings.group_id, isolation_level=settings.isolation_level
    )
    config.setdefault("queued.max.messages.kbytes", str(settings.fetch_bytes // 1024))
    key = frozenset(config.items())
    with (
        _pool.borrow(key, lambda: Client(config)) as client,
        translating_errors(f"reading {requested}"),
    ):
        reader = RangeReader(client, settings, _resolve(requested, client, settings))
        try:
            yield from reader.batches()
        finally:
            client.consumer.unassign()


def _resolve(requested: OffsetRange, client: Client, settings: FetchSettings) -> OffsetRange:
    if requested.resolved:
        return requested
    return resolve_range(requested, request_watermarks(client, requested, settings))
