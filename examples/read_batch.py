"""
Reads all records of a topic as a table.

    python examples/read_batch.py --topic flights
"""

from __future__ import annotations

import argparse

from pyspark.sql import DataFrame, SparkSession


def read(spark: SparkSession, bootstrap_servers: str, topic: str) -> DataFrame:
    """
    Return the topic's records; only the columns of the schema are decoded.
    """
    return (
        spark.read.format("pykafka")
        .schema("partition INT, offset BIGINT, timestamp TIMESTAMP, key STRING, value STRING")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", topic)
        .load()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Show the records of a topic.")
    parser.add_argument("--bootstrap-servers", default="localhost:9092")
    parser.add_argument("--topic", default="flights")
    arguments = parser.parse_args()

    spark = SparkSession.builder.appName("read_batch").getOrCreate()
    records = read(spark, arguments.bootstrap_servers, arguments.topic)
    records.orderBy("partition", "offset").show(truncate=False)
    spark.stop()


if __name__ == "__main__":
    main()
