"""
Reads a topic as it grows, turns each value into capitals, and writes it to a second topic.

    python examples/stream_to_stream.py --topic greetings --to shouts --checkpoint /tmp/shouts

Stopped and started again, it goes on where it was: the checkpoint knows the offsets.
"""

from __future__ import annotations

import argparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery


def read(spark: SparkSession, bootstrap_servers: str, topic: str) -> DataFrame:
    """
    Return the topic as a stream that starts at its oldest record.
    """
    return (
        spark.readStream.format("pykafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )


def shout(records: DataFrame) -> DataFrame:
    """
    Keep each record's key, so that the second topic has the same order for each of them.
    """
    return records.selectExpr("key", "upper(CAST(value AS STRING)) AS value")


def write(
    records: DataFrame, bootstrap_servers: str, topic: str, checkpoint: str
) -> StreamingQuery:
    """
    Write what the source holds now, then end; without the trigger it would go on for ever.
    """
    return (
        records.writeStream.format("pykafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("topic", topic)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Turn a topic's values into capitals.")
    parser.add_argument("--bootstrap-servers", default="localhost:9092")
    parser.add_argument("--topic", default="greetings")
    parser.add_argument("--to", default="shouts", help="the topic to write")
    parser.add_argument("--checkpoint", default="checkpoints/shouts")
    arguments = parser.parse_args()

    spark = SparkSession.builder.appName("stream_to_stream").getOrCreate()
    capitals = shout(read(spark, arguments.bootstrap_servers, arguments.topic))
    write(
        capitals, arguments.bootstrap_servers, arguments.to, arguments.checkpoint
    ).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
