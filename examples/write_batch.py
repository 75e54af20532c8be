"""
Appends the rows of a DataFrame to a topic.

    python examples/write_batch.py --topic greetings
"""

from __future__ import annotations

import argparse

from pyspark.sql import DataFrame, SparkSession

GREETINGS = [("en", "good morning"), ("fr", "bonjour"), ("de", "guten Morgen")]


def write(table: DataFrame, bootstrap_servers: str, topic: str) -> None:
    """
    Append the columns `key` and `value`; return when the brokers have acknowledged all records.
    """
    (
        table.write.format("pykafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("topic", topic)
        .mode("append")
        .save()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Write three records to a topic.")
    parser.add_argument("--bootstrap-servers", default="localhost:9092")
    parser.add_argument("--topic", default="greetings")
    arguments = parser.parse_args()

    spark = SparkSession.builder.appName("write_batch").getOrCreate()
    table = spark.createDataFrame(GREETINGS, "key STRING, value STRING")
    write(table, arguments.bootstrap_servers, arguments.topic)
    spark.stop()


if __name__ == "__main__":
    main()
