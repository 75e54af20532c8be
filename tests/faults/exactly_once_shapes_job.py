"""
A job in its own process: queries of several shapes, each of which writes its input to a topic.

The only argument is JSON: Spark's settings, and for each query its shape, its topics and folders,
and the options of source and sink. Faults are injected from outside this process. A query that
fails leaves a file with its error, and the others continue.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as Spark's users know it)

from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

START_SECONDS = 60.0
# Spark's error if a Python worker takes more than ten seconds to start.
NO_WORKER = "Python worker failed to connect back"
# Spark drops events that are not newer than its first watermark, the start of 1970.
FIRST_SECOND = 1_000_000_000

arguments: dict[str, Any] = json.loads(sys.argv[1])

builder = SparkSession.builder
for name, value in arguments["conf"].items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()

Query = dict[str, Any]


def numbers(query: Query, topic: int = 0) -> DataFrame:
    """
    Return the stream of a topic's numbers, each with an event time that is derived from it.
    """
    read = (
        spark.readStream.format("pykafka")
        .options(**query["source"], subscribe=query["topics"][topic])
        .option("startingOffsets", "earliest")
        .load()
    )
    number = F.col("value").cast("string").cast("long")
    event_time = F.timestamp_seconds(number + FIRST_SECOND)
    return read.select(number.alias("id"), F.col("key").cast("string"), event_time.alias("at"))


def ids(frame: DataFrame) -> DataFrame:
    """
    Return the columns that most shapes write.
    """
    return frame.select("id", "key")


def windowed(query: Query) -> DataFrame:
    counts = (
        numbers(query)
        .withWatermark("at", "0 seconds")
        .groupBy(F.window("at", "40 seconds"), "key")
        .agg(F.count("*").alias("count"), F.max("id").alias("last"))
    )
    start = F.unix_timestamp("window.start") - FIRST_SECOND
    return counts.select(start.alias("start"), "key", "count", "last")


def complete(query: Query) -> DataFrame:
    return numbers(query).groupBy("key").agg(F.count("*").alias("count"), F.max("id").alias("last"))


def joined(query: Query) -> DataFrame:
    left_side = numbers(query).withWatermark("at", "1 day").alias("left")
    right_side = numbers(query, 1).withWatermark("at", "1 day").alias("right")
    close = F.expr("right.at BETWEEN left.at AND left.at + INTERVAL 1 HOUR")
    return left_side.join(right_side, (F.expr("left.id = right.id")) & close).select(
        "left.id", "left.key"
    )


def files(query: Query) -> DataFrame:
    reader = spark.readStream.schema("id LONG, key STRING").option("maxFilesPerTrigger", 4)
    return reader.json(query["folder"])


def rate(query: Query) -> DataFrame:
    outer_rows = (
        spark.readStream.format("rate-micro-batch")
        .options(rowsPerBatch=query["source"]["maxOffsetsPerTrigger"], numPartitions=4)
        .load()
    )
    return outer_rows.select(F.col("value").alias("id"))


def with_random(query: Query) -> DataFrame:
    return ids(numbers(query)).withColumns({"random": F.rand(), "uuid": F.expr("uuid()")})


@dataclass(frozen=True)
class Shape:
    """
    The rows of a query, and its output mode.
    """

    frame: Callable[[Query], DataFrame]
    mode: str = "append"


SHAPES = {
    "copy": Shape(lambda query: ids(numbers(query))),
    "repartition": Shape(lambda query: ids(numbers(query)).repartition(4)),
    "repartition_by_key": Shape(lambda query: ids(numbers(query)).repartition(4, "key")),
    "repartition_by_setting": Shape(lambda query: ids(numbers(query)).repartition("key")),
    "union": Shape(lambda query: ids(numbers(query)).union(ids(numbers(query, 1)))),
    "coalesce": Shape(lambda query: ids(numbers(query)).coalesce(1)),
    "windowed": Shape(windowed),
    "complete": Shape(complete, "complete"),
    "join": Shape(joined),
    "files": Shape(files),
    "rate": Shape(rate),
    "random": Shape(with_random),
    "random_repartition": Shape(lambda query: with_random(query).repartition(4, "random")),
}


def committed(query: Query) -> int:
    """
    Return the last batch that Spark has committed, or -1.
    """
    folder = Path(query["checkpoint"]) / "commits"
    names = [file.name for file in folder.glob("*")] if folder.exists() else []
    return max((int(name) for name in names if name.isdigit()), default=-1)


def write(query: Query, **trigger: Any) -> StreamingQuery:
    """
    Start a query.
    """
    shape = SHAPES[query["shape"]]
    frame = shape.frame(query)
    key = F.col("key" if "key" in frame.columns else "id").cast("string").alias("key")
    writer = (
        frame.select(key, F.to_json(F.struct("*")).alias("value"))
        .writeStream.format("pykafka")
        .options(**query["sink"], checkpointLocation=query["checkpoint"])
        .outputMode(shape.mode)
    )
    return (writer.trigger(**trigger) if trigger else writer).start()


def started(query: Query) -> StreamingQuery:
    """
    Start a query, and return it once its sources are initialised, or it has failed.

    Spark gives a Python worker ten seconds to start, too short for many at once on a busy machine.
    """
    running = write(query)

    def missing() -> str | None:
        message = running.status["message"]
        return message if running.isActive and "Initializing" in message else None

    wait_until(missing, START_SECONDS)
    return running


def finish(query: Query, running: StreamingQuery) -> bool | None:
    """
    Wait until a query has written everything; return whether it succeeded, or None to rerun it.
    """
    try:
        if is_endless(query):
            running.awaitTermination()
        else:
            running.processAllAvailable()
            running.stop()
    except StreamingQueryException as error:
        return None if NO_WORKER in str(error) else failed(query, error)
    return None if is_endless(query) and committed(query) < query["last"] else True


def is_endless(query: Query) -> bool:
    """
    Return whether a query never ends by itself, so that each run is limited to one batch.
    """
    return bool(query["shape"] == "rate")


def failed(query: Query, error: StreamingQueryException) -> bool:
    Path(query["failed"]).write_text(str(error))
    return False


with ThreadPoolExecutor(max(len(arguments["queries"]), 1)) as pool:
    waiting: dict[Future[bool | None], Query] = {}
    results: list[bool] = []

    def run(query: Query) -> None:
        # Queries are started in this thread, since the session is not active in other threads.
        running = write(query, availableNow=True) if is_endless(query) else started(query)
        waiting[pool.submit(finish, query, running)] = query

    for query in arguments["queries"]:
        run(query)
    while waiting:
        for future in wait(waiting, return_when=FIRST_COMPLETED).done:
            query, result = waiting.pop(future), future.result()
            if result is None:
                run(query)
            else:
                results.append(result)
sys.exit(0 if all(results) else 1)
