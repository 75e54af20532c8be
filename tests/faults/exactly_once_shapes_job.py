"""
A job of its own process: a query of one shape or another writes to a topic until all is there.

The only argument is JSON: where brokers, topics and the checkpoint are, the shape, the options of
source and sink, and Spark's settings. Nothing here knows of faults: they come from outside.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as Spark's users know it)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

given: dict[str, Any] = json.loads(sys.argv[1])
servers = {"kafka.bootstrap.servers": given["bootstrap"]}

builder = SparkSession.builder
for name, value in given["conf"].items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()


def numbers(topic: int = 0) -> DataFrame:
    """
    Return the stream of a topic's numbers; each is the time of its event, too, in seconds.
    """
    read = (
        spark.readStream.format("pykafka")
        .options(**servers, **given["source"], subscribe=given["topics"][topic])
        .option("startingOffsets", "earliest")
        .load()
    )
    number = F.col("value").cast("string").cast("long")
    return read.select(
        number.alias("id"), F.col("key").cast("string"), F.timestamp_seconds(number).alias("at")
    )


def ids(frame: DataFrame) -> DataFrame:
    """
    Return what most shapes write.
    """
    return frame.select("id", "key")


def windowed() -> DataFrame:
    counted = (
        numbers()
        .withWatermark("at", "1 day")
        .groupBy(F.window("at", "100 seconds"), "key")
        .agg(F.count("*").alias("count"), F.max("id").alias("last"))
    )
    return counted.select(F.unix_timestamp("window.start").alias("start"), "key", "count", "last")


def complete() -> DataFrame:
    return numbers().groupBy("key").agg(F.count("*").alias("count"), F.max("id").alias("last"))


def joined() -> DataFrame:
    left = numbers(0).withWatermark("at", "1 day").alias("left")
    right = numbers(1).withWatermark("at", "1 day").alias("right")
    close = F.expr("right.at BETWEEN left.at AND left.at + INTERVAL 1 HOUR")
    return left.join(right, (F.expr("left.id = right.id")) & close).select("left.id", "left.key")


def files() -> DataFrame:
    reader = spark.readStream.schema("id LONG, key STRING").option("maxFilesPerTrigger", 4)
    return reader.json(given["folder"])


def rate() -> DataFrame:
    made = (
        spark.readStream.format("rate-micro-batch")
        .options(rowsPerBatch=given["source"]["maxOffsetsPerTrigger"], numPartitions=4)
        .load()
    )
    return made.select(F.col("value").alias("id"))


def with_random() -> DataFrame:
    return ids(numbers()).withColumns({"random": F.rand(), "uuid": F.expr("uuid()")})


@dataclass(frozen=True)
class Shape:
    """
    What is written, and in which mode.
    """

    frame: Callable[[], DataFrame]
    mode: str = "append"


SHAPES = {
    "copy": Shape(lambda: ids(numbers())),
    "repartition": Shape(lambda: ids(numbers()).repartition(4)),
    "repartition_by_key": Shape(lambda: ids(numbers()).repartition(4, "key")),
    "repartition_by_setting": Shape(lambda: ids(numbers()).repartition("key")),
    "union": Shape(lambda: ids(numbers(0)).union(ids(numbers(1)))),
    "coalesce": Shape(lambda: ids(numbers()).coalesce(1)),
    "windowed": Shape(windowed, "update"),
    "complete": Shape(complete, "complete"),
    "join": Shape(joined),
    "files": Shape(files),
    "rate": Shape(rate),
    "random": Shape(with_random),
    "random_repartition": Shape(lambda: with_random().repartition(4, "random")),
}


def committed() -> int:
    """
    Return the last batch that Spark has committed, or -1.
    """
    folder = Path(given["checkpoint"]) / "commits"
    names = [file.name for file in folder.glob("*")] if folder.exists() else []
    return max((int(name) for name in names if name.isdigit()), default=-1)


def write(**trigger: Any) -> Any:
    """
    Start the query.
    """
    shape = SHAPES[given["shape"]]
    frame = shape.frame()
    key = F.col("key" if "key" in frame.columns else "id").cast("string").alias("key")
    writer = (
        frame.select(key, F.to_json(F.struct("*")).alias("value"))
        .writeStream.format("pykafka")
        .options(**servers, **given["sink"], checkpointLocation=given["checkpoint"])
        .outputMode(shape.mode)
    )
    return (writer.trigger(**trigger) if trigger else writer).start()


if given["shape"] == "rate":
    # It never ends by itself, and gives one batch each time.
    while committed() < given["last"]:
        write(availableNow=True).awaitTermination()
else:
    query = write()
    query.processAllAvailable()
    query.stop()
