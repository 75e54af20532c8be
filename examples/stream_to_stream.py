"""
Reads a topic as a stream, converts the values to upper case, and writes them to a second topic.

    python examples/stream_to_stream.py --topic greetings --to shouts --checkpoint /tmp/shouts

After a restart, it continues where it stopped: the checkpoint has the offsets.
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


def shout(records: DataFrame) -> DataFrame:
    """
    Convert the values to upper case; the keys stay, so the records of a key keep their order.
    """
    return records.selectExpr("key", "upper(CAST(value AS STRING)) AS value")


def write(
    records: DataFrame, bootstrap_servers: str, topic: str, checkpoint: str
) -> StreamingQuery:
    """
    Write the current records, then end; without the trigger, the query would run forever.
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
    parser = argparse.ArgumentParser(description="Convert a topic's values to upper case.")
    parser.add_argument("--bootstrap-servers", default="localhost:9092")
    parser.add_argument("--topic", default="greetings")
    parser.add_argument("--to", default="shouts", help="the topic to write")
    parser.add_argument("--checkpoint", default="checkpoints/shouts")
    arguments = parser.parse_args()

    spark = SparkSession.builder.appName("stream_to_stream").getOrCreate()
    upper_case = shout(read(spark, arguments.bootstrap_servers, arguments.topic))
    write(
        upper_case, arguments.bootstrap_servers, arguments.to, arguments.checkpoint
    ).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
