"""
Options: one declared table, and parsing that tells every mistake at once.

Pure: no I/O, no Spark, no Kafka client.
"""

from __future__ import annotations

from pyspark_pykafka.options.option import Option, Scope
from pyspark_pykafka.options.parse import parse_batch_source, parse_sink, parse_stream_source
from pyspark_pykafka.options.table import OPTIONS
from pyspark_pykafka.options.values import (
    Assign,
    Committed,
    Earliest,
    GlobalTimestamp,
    Latest,
    Position,
    SinkOptions,
    SourceOptions,
    SpecificOffsets,
    SpecificTimestamps,
    Strategy,
    Subscribe,
    SubscribePattern,
)

__all__ = [
    "OPTIONS",
    "Assign",
    "Committed",
    "Earliest",
    "GlobalTimestamp",
    "Latest",
    "Option",
    "Position",
    "Scope",
    "SinkOptions",
    "SourceOptions",
    "SpecificOffsets",
    "SpecificTimestamps",
    "Strategy",
    "Subscribe",
    "SubscribePattern",
    "parse_batch_source",
    "parse_sink",
    "parse_stream_source",
]
