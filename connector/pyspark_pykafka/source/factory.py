"""
Builds the parts that batch and streaming reads share: the metadata client and tasks' settings.
"""

from __future__ import annotations

import uuid
from functools import partial
from typing import TYPE_CHECKING

from pyspark_pykafka.engines.contract import FetchSettings
from pyspark_pykafka.engines.selection import metadata_backend

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_pykafka.engines.metadata import MetadataClient
    from pyspark_pykafka.options import SourceOptions


def metadata_client(options: SourceOptions) -> MetadataClient:
    """
    Return the driver's metadata client, with the retries that the options set.
    """
    # Imported here, since a worker that only reads does not need them.
    from pyspark_pykafka.engines.metadata import MetadataClient
    from pyspark_pykafka.progress.factory import committed_offsets

    backend = metadata_backend(options.kafka, options.isolation_level, options.engine)
    return MetadataClient(backend, options.fetch_offset_retry, partial(committed_offsets, options))


def task_metadata_client(options: SourceOptions) -> MetadataClient:
    """
    Return the metadata client of a task, which has no access to committed offsets.
    """
    # Imported here, since most tasks need no metadata besides that of their partition.
    from pyspark_pykafka.engines.metadata import MetadataClient

    backend = metadata_backend(options.kafka, options.isolation_level, options.engine)
    return MetadataClient(backend, options.fetch_offset_retry)


def fetch_settings(options: SourceOptions, schema: pa.Schema) -> FetchSettings:
    """
    Return everything that a task needs to read the columns of a schema, except its offset range.
    """
    group_id = options.kafka.get("group.id")
    # Replicas are compacted at different times. A pass that goes from one replica to another could
    # see an older record of a key on the first one, but not the key's tombstone, which compaction
    # has already removed from the second one. So only leaders are read.
    reads_leaders = options.latest_per_key
    return FetchSettings(
        engine=options.engine,
        kafka=options.kafka.without("client.rack") if reads_leaders else options.kafka,
        schema=schema,
        group_id=group_id or f"{options.group_id_prefix}-{uuid.uuid4()}-executor",
        isolation_level=options.isolation_level,
        poll_timeout_ms=options.poll_timeout_ms,
        fail_on_data_loss=options.fail_on_data_loss,
        end_retries=options.fetch_offset_num_retries,
        end_retry_ms=options.fetch_offset_retry_interval_ms,
        memory_bytes=options.max_fetch_memory,
        rack_source=None if reads_leaders else options.rack_source,
    )
