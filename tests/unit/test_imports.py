"""
What a fresh worker loads: start-up is part of every query's first batch.
"""

from __future__ import annotations

import pytest
from tests.support.fresh_process import modules_after

READING = """
import sys
import pyarrow as pa
from pyspark_pykafka.schema import SOURCE_TYPES
from pyspark_pykafka.offsets import TopicPartition
from pyspark_pykafka.engines.wire.records.compression import Decompressor
from pyspark_pykafka.engines.wire.records.arrow_decoder import ArrowDecoder
from tests.support.record_batches import Batch, Record

columns = ArrowDecoder.of_range(
    TopicPartition("t", 3), 0, 2, pa.schema(SOURCE_TYPES.items()), Decompressor(1 << 20),
    max_records=10, max_bytes=1 << 20, check_crcs=True,
)
records = Batch(0, 1, (Record(0, value=b"a"), Record(1, value=b"b"))).encode()
batches = [*columns.batches(records, ()), *columns.rest()]
rows = pa.Table.from_batches(batches)
assert rows["topic"].to_pylist() == ["t", "t"]
assert rows["partition"].to_pylist() == [3, 3]
"""


@pytest.mark.parametrize(
    ("code", "left_out"),
    [
        pytest.param(
            "import pyspark_pykafka.spark.datasource",
            {"confluent_kafka", "kafka", "pandas"},
            id="source",
        ),
        pytest.param(
            "import pyspark_pykafka.spark.batch_reader, pyspark_pykafka.engines.selection",
            {"confluent_kafka", "kafka", "pandas"},
            id="reader",
        ),
        pytest.param(READING, {"confluent_kafka", "pandas"}, id="reading"),
    ],
)
def test_heavy_libraries_wait_until_they_are_used(code: str, left_out: set[str]) -> None:
    """
    pandas, which pyarrow imports for single values, takes a quarter of a second, and Kafka's
    clients a tenth each; none is loaded where it is of no use.
    """
    assert not left_out & modules_after(code)
