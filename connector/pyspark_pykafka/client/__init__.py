"""
The one door to the Kafka client: its configuration and its errors.
"""

from __future__ import annotations

from pyspark_pykafka.client.codes import MEANINGS, Meaning
from pyspark_pykafka.client.configuration import (
    admin_config,
    api_timeout_ms,
    consumer_config,
    delivery_timeout_ms,
    max_block_ms,
    producer_config,
)
from pyspark_pykafka.client.mapping import FatalErrors, map_kafka_error, translating_errors

__all__ = [
    "MEANINGS",
    "FatalErrors",
    "Meaning",
    "admin_config",
    "api_timeout_ms",
    "consumer_config",
    "delivery_timeout_ms",
    "map_kafka_error",
    "max_block_ms",
    "producer_config",
    "translating_errors",
]
