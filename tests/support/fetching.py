"""
The settings and columns of tests that read a range with an engine.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

from pyspark_pykafka.engines.contract import FetchSettings
from pyspark_pykafka.schema import SOURCE_TYPES
from pyspark_pykafka.settings import KafkaSettings

SCHEMA = pa.schema(list(SOURCE_TYPES.items()))
#: The columns for tests that look at the records alone.
VALUES = pa.schema([(name, SOURCE_TYPES[name]) for name in ("value", "offset")])


def settings(bootstrap: str, engine: str, **changes: Any) -> FetchSettings:
    """
    Return the settings of a read, with the defaults of the options.
    """
    defaults = FetchSettings(
        engine=engine,
        kafka=KafkaSettings.of({"bootstrap.servers": bootstrap}),
        schema=SCHEMA,
        group_id="engines",
        isolation_level="read_uncommitted",
        poll_timeout_ms=20_000,
        fail_on_data_loss=True,
        end_retries=3,
        end_retry_ms=100,
        memory_bytes=64 << 20,
    )
    return replace(defaults, **changes)
