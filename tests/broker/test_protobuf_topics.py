"""
Topics of Protobuf messages through Spark.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from fuzz.protobuf_mutations import new_file, with_imports
from google.protobuf import descriptor_pool, message_factory

from pyspark_pykafka.testing import KafkaCluster, Record

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

# The numbers of the scalar types in a field descriptor.
KINDS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 15, 16, 17, 18)


def described() -> Any:
    """
    Return the descriptors of ``shop.Order``, which has a field of each kind.
    """
    file = new_file("proto3")
    part = file.message_type.add(name="Part")
    part.field.add(name="x", number=1, label=1, type=5)
    part.field.add(name="s", number=2, label=3, type=9)
    order = file.message_type.add(name="Order")
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=1, type=9)
    entry.field.add(name="value", number=2, label=1, type=11, type_name=".shop.Part")
    order.oneof_decl.add(name="choice")
    for kind in KINDS:
        order.field.add(name=f"f{kind}", number=kind, label=1, type=kind)
        order.field.add(name=f"list{kind}", number=100 + kind, label=3, type=kind)
    types_by_name = {
        "part": (1, ".shop.Part"),
        "parts": (3, ".shop.Part"),
        "counts": (3, ".shop.Order.CountsEntry"),
        "at": (1, ".google.protobuf.Timestamp"),
        "span": (1, ".google.protobuf.Duration"),
        "wrapped": (1, ".google.protobuf.Int64Value"),
    }
    for number, (name, (label, other)) in enumerate(types_by_name.items(), 30):
        order.field.add(name=name, number=number, label=label, type=11, type_name=other)
    order.field.add(name="state", number=50, label=1, type=14, type_name=".shop.E")
    order.field.add(name="one", number=51, label=1, type=9, oneof_index=0)
    order.field.add(name="two", number=52, label=1, type=5, oneof_index=0)
    return with_imports(file)


def messages() -> list[bytes]:
    """
    Return messages with some fields each, and one that consists of two concatenated ones.
    """
    pool = descriptor_pool.DescriptorPool()
    for file in described().file:
        pool.Add(file)
    kind: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    everything: dict[str, Any] = {
        **{f"f{n}": -5 for n in (3, 5, 15, 16, 17, 18)},
        "f1": 0.1,
        "f2": 0.5,
        "f4": 2**64 - 1,
        "f13": 2**32 - 1,
        "f8": True,
        "f9": "é",
        "f12": b"\0\xff",
        "list9": ["", "a"],
        "list4": [0, 2**63],
        "list8": [False],
        "part": {"x": 1},
        "parts": [{"x": 2, "s": ["a"]}, {}],
        "counts": {"k": {"x": 3}},
        "at": {"seconds": -1, "nanos": 999_999_999},
        "span": {"seconds": 90061, "nanos": 1000},
        "wrapped": {"value": 7},
        "state": 5,
        "two": 0,
    }
    generator = random.Random(1)
    messages = [kind().SerializeToString(), kind(**everything).SerializeToString()]
    for _ in range(20):
        fields = {k: v for k, v in everything.items() if generator.randrange(2)}
        messages.append(kind(**fields).SerializeToString())
    later = kind(part={"s": ["b"]}, one="x", state=9, list4=[1])
    return [*messages, messages[1] + later.SerializeToString()]


@pytest.fixture
def orders(
    spark: SparkSession,
    kafka_cluster: KafkaCluster,
    topic: Callable[..., str],
    tmp_path: Path,
) -> Callable[..., DataFrame]:
    """
    Return a function that loads a topic of messages with further options.
    """
    name = topic()
    kafka_cluster.produce(name, [Record(message, None) for message in messages()])
    (tmp_path / "orders.desc").write_bytes(described().SerializeToString())

    def load(**options: str) -> DataFrame:
        reader = spark.read.format("pykafka").option("subscribe", name)
        reader = reader.option("kafka.bootstrap.servers", kafka_cluster.bootstrap)
        return reader.options(**options).load().orderBy("offset")

    return load


def typed(folder: Path, **options: str) -> dict[str, str]:
    defaults = {"valueFormat": "protobuf", "valueSchema": str(folder / "orders.desc")}
    return defaults | {"valueMessageName": "shop.Order"} | options


@pytest.mark.parametrize("engine", ["wire", "librdkafka"])
def test_messages_are_structs(
    orders: Callable[..., DataFrame], tmp_path: Path, engine: str
) -> None:
    """
    A message is a STRUCT of the types that the page names, intervals and unsigned numbers too.
    """
    frame = orders(**typed(tmp_path, engine=engine))

    kinds = dict(frame.selectExpr("value.f4", "value.f13", "value.at", "value.span").dtypes)
    assert kinds == {
        "f4": "decimal(20,0)",
        "f13": "bigint",
        "at": "timestamp",
        "span": "interval day to second",
    }
    picked = ("f4", "f13", "list9", "part", "two", "state")
    row = frame.selectExpr(*(f"value.{name}" for name in picked)).collect()[1]
    assert row.asDict(recursive=True) == {
        "f4": 2**64 - 1,
        "f13": 2**32 - 1,
        "list9": ["", "a"],
        "part": {"x": 1, "s": []},
        "two": 0,
        "state": "S5",
    }
    span = frame.selectExpr("CAST(value.span AS STRING) AS s").collect()[1].s
    assert span == "INTERVAL '1 01:01:01.000001' DAY TO SECOND"


def test_messages_are_written(
    orders: Callable[..., DataFrame],
    kafka_cluster: KafkaCluster,
    topic: Callable[..., str],
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    """
    Rows that were read are written again as messages, and a second read has the same rows; a value
    out of range fails the write with an error that names the field.
    """
    # Numbers without a symbol have a name that cannot be written.
    frame = orders(**typed(tmp_path)).where("value.state IS NULL OR value.state LIKE 'S%'")
    copy = topic()
    sink = {"kafka.bootstrap.servers": kafka_cluster.bootstrap, "topic": copy}

    rows = frame.selectExpr("CAST(offset AS STRING) AS key", "value")
    rows.write.format("pykafka").mode("append").options(**typed(tmp_path), **sink).save()

    copied = spark.read.format("pykafka").option("subscribe", copy)
    copied = copied.option("kafka.bootstrap.servers", kafka_cluster.bootstrap)
    copied_rows = copied.options(**typed(tmp_path, keyFormat="text")).load().select("key", "value")
    assert sorted(map(str, copied_rows.collect())) == sorted(map(str, rows.collect()))
    wrong = spark.sql("SELECT named_struct('f13', -1L) AS value")
    with pytest.raises(Exception, match=r"KAFKA_UNENCODABLE_RECORD.*value\.f13 is out of range"):
        wrong.write.format("pykafka").mode("append").options(**typed(tmp_path), **sink).save()
