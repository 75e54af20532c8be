"""
Counts the records of a topic by key as they arrive, and prints the counts.

    python examples/read_stream.py --topic greetings          until Ctrl-C
    python examples/read_stream.py --topic greetings --once   current records only
"""

from __future__ import annotations

import argparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery


def read(spark: SparkSession, bootstrap_servers: str, topic: str) -> DataFrame:
    """
    Return the topic as a stream that starts at the oldest record.
    """
    return (
        spark.readStream.format("pykafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )


def print_counts(records: DataFrame, *, once: bool) -> StreamingQuery:
    """
    Start the query; without a checkpoint, each run counts from the start.
    """
    counts = records.groupBy(records.key.cast("string").alias("key")).count()
    writer = counts.orderBy("key").writeStream.format("console").outputMode("complete")
    trigger = (
        writer.trigger(availableNow=True) if once else writer.trigger(processingTime="1 second")
    )
    return trigger.start()


def main() -> None:
    parser = argparse.ArgumentParser(description="Count a topic's records by key.")
    parser.add_argument("--bootstrap-servers", default="localhost:9092")
    parser.add_argument("--topic", default="greetings")
    parser.add_argument("--once", action="store_true", help="end when all records are read")
    arguments = parser.parse_args()

    spark = SparkSession.builder.appName("read_stream").getOrCreate()
    records = read(spark, arguments.bootstrap_servers, arguments.topic)
    print_counts(records, once=arguments.once).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
