"""
A job for spark-submit: queries that brokers refuse, first with Spark's own log level, and then with
FATAL. A line on stderr separates them.

Its arguments are the brokers and a folder for checkpoints.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from collections.abc import Callable

SECONDS = 120


def main() -> None:
    """
    Run each query twice.
    """
    brokers, folder = {"kafka.bootstrap.servers": sys.argv[1]}, sys.argv[2]
    read = {**brokers, "subscribe": "t", "startingOffsets": "earliest"}
    spark = SparkSession.builder.getOrCreate()

    def load() -> None:
        spark.read.format("pykafka").options(**read, startingOffset="latest").load()

    def batch() -> None:
        spark.read.format("pykafka").options(**read).load().collect()

    def write() -> None:
        rows = spark.range(1).selectExpr("'a' AS value").write.format("pykafka")
        rows.options(**brokers, topic="t").mode("append").save()

    def stream() -> None:
        rows = spark.readStream.format("pykafka").options(**read).load()
        writer = rows.writeStream.format("noop").trigger(availableNow=True)
        writer = writer.option("checkpointLocation", f"{folder}/{level}")
        writer.start().awaitTermination(SECONDS)

    for level in ("", "FATAL"):
        if level:
            spark.sparkContext.setLogLevel(level)
        for query in (load, batch, write, stream):
            run(query, level)
    spark.stop()


def run(query: Callable[[], None], level: str) -> None:
    """
    Run a query between two lines on stderr, and expect its error.
    """
    print(f"=== begin {query.__name__} {level}".rstrip(), file=sys.stderr, flush=True)  # noqa: T201
    try:
        query()
    except PySparkException:
        print("=== end", file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
