"""
The metadata backend of each engine, without the connector's choice between them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_pykafka.engines.librdkafka.metadata import AdminMetadata
from pyspark_pykafka.engines.wire.consumer.metadata import WireMetadata

if TYPE_CHECKING:
    from pyspark_pykafka.engines.metadata_contract import MetadataBackend
    from pyspark_pykafka.settings import KafkaSettings


def metadata_backend_of(kafka: KafkaSettings, isolation_level: str, engine: str) -> MetadataBackend:
    """
    Return the metadata backend of an engine.
    """
    if engine == "librdkafka":
        return AdminMetadata(kafka, isolation_level)
    return WireMetadata(kafka, isolation_level)
