"""
A micro-batch has the same number of tasks in each run, whether the driver or tasks read it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.support.memory_cluster import Cluster

from pyspark_pykafka.errors import TimeoutExceededError
from pyspark_pykafka.options import parse_stream_source
from pyspark_pykafka.schema import SOURCE_TYPES
from pyspark_pykafka.source.driver_read import (
    BoundedDriverReader,
    DisabledDriverReader,
    DriverReader,
)
from pyspark_pykafka.source.micro_batch_stream import MicroBatchStream
from pyspark_pykafka.spark.stream_reader import _LegacyStreamReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_pykafka.offsets import OffsetRange

SCHEMA = pa.schema([pa.field("value", SOURCE_TYPES["value"])])
START = {"t": {"0": 0, "1": 0, "2": 0}}


def read_at_once(r: OffsetRange) -> Iterator[pa.RecordBatch]:
    """
    Return the records of a range at once.
    """
    yield pa.record_batch([pa.array([b"x"] * r.size)], SCHEMA)


def time_out(r: OffsetRange) -> pa.RecordBatch:
    raise TimeoutExceededError(str(r))


def read_in_vain(r: OffsetRange) -> Iterator[pa.RecordBatch]:
    """
    Time out, as without a broker.
    """
    yield time_out(r)


def read_too_much(_: OffsetRange) -> Iterator[pa.RecordBatch]:
    """
    Return more bytes than the driver may read.
    """
    yield pa.record_batch([pa.array([bytes(2**22)])], SCHEMA)


def planned(driver_reader: DriverReader, end: dict[str, Any], *, replayed: bool) -> list[Any]:
    """
    Return the values of a micro-batch's input partitions, in a first run or in a replay.
    """
    cluster = Cluster()
    cluster.create_topic("t", 9_000, 9_000, 9_000)
    source_options = {
        "kafka.bootstrap.servers": "b:1",
        "subscribe": "t",
        "startingOffsets": "earliest",
    }
    options = parse_stream_source(source_options)
    reader = _LegacyStreamReader(options, SCHEMA)
    reader._stream = MicroBatchStream(options, cluster, dict)
    reader._driver_reader = driver_reader
    if not replayed:
        reader.latestOffset()
    return [partition.value for partition in reader.partitions(START, end)]


@pytest.mark.parametrize("replayed", [False, True], ids=["first run", "replay"])
@pytest.mark.parametrize("read", [read_at_once, read_in_vain, read_too_much])
@pytest.mark.parametrize(
    ("size", "tasks"), [(1, 1), (1_000, 1), (2_000, 3)], ids=["tiny", "small", "large"]
)
def test_input_partitions_depend_on_offsets_alone(
    read: Any, size: int, tasks: int, *, replayed: bool
) -> None:
    """
    Up to 5,000 offsets get one task, on the driver or not; more get one task for each range.
    """
    end = {"t": dict.fromkeys("012", size)}
    input_partitions = planned(BoundedDriverReader(read), end, replayed=replayed)
    ranges = planned(DisabledDriverReader(), end, replayed=replayed)

    assert input_partitions == ([tuple(ranges)] if tasks == 1 else ranges)
    assert len(ranges) == 3
