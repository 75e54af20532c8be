"""
Spark options: one declared table, and parsers that report every mistake at once.

Pure: no I/O, no Spark, no Kafka client.
"""

from __future__ import annotations

from pyspark_pykafka.options.encoding_values import EncodedColumnOptions, EncodingOptions
from pyspark_pykafka.options.format_values import FormatOptions
from pyspark_pykafka.options.offset_values import (
    AtTime,
    Committed,
    Earliest,
    GlobalTimestamp,
    LastOffsets,
    Latest,
    OffsetLimit,
    Position,
    SpecificOffsets,
    SpecificTimestamps,
    TimeAgo,
)
from pyspark_pykafka.options.option import Option, Scope
from pyspark_pykafka.options.parse import (
    parse_batch_source,
    parse_sink,
    parse_source,
    parse_stream_source,
)
from pyspark_pykafka.options.registry_values import RegistryOptions, SubjectOptions
from pyspark_pykafka.options.store_values import (
    ConsumerGroup,
    NoStore,
    StoreOptions,
    ZooKeeperNodes,
)
from pyspark_pykafka.options.table import OPTIONS
from pyspark_pykafka.options.values import (
    Assign,
    RackProvider,
    RackSource,
    RackVariable,
    SinkOptions,
    SourceOptions,
    Strategy,
    Subscribe,
    SubscribePattern,
)

__all__ = [
    "OPTIONS",
    "Assign",
    "AtTime",
    "Committed",
    "ConsumerGroup",
    "Earliest",
    "EncodedColumnOptions",
    "EncodingOptions",
    "FormatOptions",
    "GlobalTimestamp",
    "LastOffsets",
    "Latest",
    "NoStore",
    "OffsetLimit",
    "Option",
    "Position",
    "RackProvider",
    "RackSource",
    "RackVariable",
    "RegistryOptions",
    "Scope",
    "SinkOptions",
    "SourceOptions",
    "SpecificOffsets",
    "SpecificTimestamps",
    "StoreOptions",
    "Strategy",
    "SubjectOptions",
    "Subscribe",
    "SubscribePattern",
    "TimeAgo",
    "ZooKeeperNodes",
    "parse_batch_source",
    "parse_sink",
    "parse_source",
    "parse_stream_source",
]
