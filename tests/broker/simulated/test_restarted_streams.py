"""
Restarted streams of typed values: Spark's calls of the reader, against a simulated broker.
"""

from __future__ import annotations

import json
import pickle
from itertools import chain
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import cloudpickle
from pyspark.sql.types import LongType, StringType, StructField, StructType
from tests.support.served_kafka import SimulatedAccess

from pyspark_pykafka import DefaultSource
from pyspark_pykafka.spark.compat import PASSES_START_OFFSET, ReadAllAvailable
from pyspark_pykafka.testing.records import Record

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

ID = StructField("id", LongType())
RESCUED = StructField("_rescued", StringType())


@pytest.fixture
def orders() -> Iterator[SimulatedAccess]:
    """
    One simulated broker with a topic ``orders``.
    """
    with SimulatedAccess() as cluster:
        cluster.create_topic("orders")
        yield cluster


def value_schema(*fields: StructField) -> StructType:
    return StructType([StructField("value", StructType([*fields]))])


class Driver:
    """
    The driver of a query, and a worker; a new instance stands for a restart. Offsets pass through
    JSON, as in a checkpoint, and the reader through pickle, as on its way to a worker.
    """

    def __init__(self, cluster: SimulatedAccess, schema: StructType, **options: str) -> None:
        common = {
            "kafka.bootstrap.servers": cluster.bootstrap,
            "subscribe": "orders",
            "startingOffsets": "earliest",
            "valueFormat": "json",
            "engine": "wire",
        }
        self._reader: Any = DefaultSource({**common, **options}).streamReader(schema)

    def first(self) -> str:
        return json.dumps(self._reader.initialOffset())

    def latest(self, start: str) -> str:
        arguments = (json.loads(start), ReadAllAvailable()) if PASSES_START_OFFSET else ()
        return json.dumps(self._reader.latestOffset(*arguments))

    def rows(self, start: str, end: str) -> list[dict[str, Any]]:
        partitions = self._reader.partitions(json.loads(start), json.loads(end))
        of_driver = rows_of(self._reader.getCache(start, end))
        worker = pickle.loads(cloudpickle.dumps(self._reader))  # noqa: S301 (our own bytes)
        of_task = rows_of(chain.from_iterable(map(worker.read, partitions)))
        # A small batch is read on the driver, and again by a task if Spark loses its records.
        assert of_driver in (of_task, [])
        return of_task


def rows_of(batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def test_unknown_fields_after_a_restart(orders: SimulatedAccess) -> None:
    """
    A restarted query rescues the same fields when it repeats a batch. If the schema or an option
    has changed, it decodes the batch with the new one.
    """
    typed = StructType([*value_schema(ID), RESCUED])
    written = (b'{"id":1,"vip":true}', b'{"id":2,"at":{"x":1}}')
    orders.produce("orders", [Record(value) for value in written])
    first = Driver(orders, typed, onUnknownField="rescue")
    start = first.first()
    end = first.latest(start)
    expected = [
        {"value": {"id": 1}, "_rescued": '{"vip":true}'},
        {"value": {"id": 2}, "_rescued": '{"at":{"x":1}}'},
    ]
    assert first.rows(start, end) == expected

    orders.produce("orders", [Record(b'{"id":3,"vip":false}')])
    restarted = Driver(orders, typed, onUnknownField="rescue")

    assert restarted.rows(start, end) == expected
    assert restarted.rows(end, restarted.latest(end)) == [
        {"value": {"id": 3}, "_rescued": '{"vip":false}'},
    ]
    part = StructField("at", StructType([StructField("y", LongType())]))
    wider = Driver(orders, StructType([*value_schema(ID, part), RESCUED]), onUnknownField="rescue")
    assert wider.rows(start, end)[1] == {
        "value": {"id": 2, "at": {"y": None}},
        "_rescued": '{"at":{"x":1}}',
    }
    plain = Driver(orders, value_schema(ID))
    assert plain.rows(start, end) == [{"value": {"id": 1}}, {"value": {"id": 2}}]
