"""
A job for spark-submit: counts the records of each partition of a topic.

On a cluster where pyspark-pykafka is installed:

    spark-submit examples/submit_job.py --topic flights

If only its dependencies (confluent-kafka, pyarrow) are installed, ship the package with the job:

    (cd connector && python -m zipfile -c ../pykafka.zip pyspark_pykafka)
    spark-submit --py-files pykafka.zip examples/submit_job.py --topic flights
"""

from __future__ import annotations

import argparse

from pyspark.sql import DataFrame, SparkSession

from pyspark_pykafka import register


def count(spark: SparkSession, bootstrap_servers: str, topic: str) -> DataFrame:
    """
    Return the number of records of each partition.
    """
    records = (
        spark.read.format("pykafka")
        .schema("partition INT")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", topic)
        .load()
    )
    return records.groupBy("partition").count().orderBy("partition")


def main() -> None:
    parser = argparse.ArgumentParser(description="Count the records of each partition of a topic.")
    parser.add_argument("--bootstrap-servers", default="localhost:9092")
    parser.add_argument("--topic", default="flights")
    arguments = parser.parse_args()

    spark = SparkSession.builder.appName("submit_job").getOrCreate()
    # Spark finds an installed package automatically, but not one shipped with --py-files.
    register(spark)
    count(spark, arguments.bootstrap_servers, arguments.topic).show()
    spark.stop()


if __name__ == "__main__":
    main()
