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
    transaction_timeout_ms,
)
from pyspark_pykafka.client.direct import (
    Address,
    DirectConfig,
    ProducerConfig,
    Sasl,
    Tls,
    direct_config,
    direct_producer_config,
)
from pyspark_pykafka.client.mapping import (
    FatalErrors,
    map_error_code,
    map_kafka_error,
    translating_errors,
)
from pyspark_pykafka.client.refusal import direct_producer_refusal, direct_refusal
from pyspark_pykafka.client.unsecured import UnsecuredToken

__all__ = [
    "MEANINGS",
    "Address",
    "DirectConfig",
    "FatalErrors",
    "Meaning",
    "ProducerConfig",
    "Sasl",
    "Tls",
    "UnsecuredToken",
    "admin_config",
    "api_timeout_ms",
    "consumer_config",
    "delivery_timeout_ms",
    "direct_config",
    "direct_producer_config",
    "direct_producer_refusal",
    "direct_refusal",
    "map_error_code",
    "map_kafka_error",
    "max_block_ms",
    "producer_config",
    "transaction_timeout_ms",
    "translating_errors",
]
