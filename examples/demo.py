"""
Sends 336,776 real flights through Kafka and Spark and back, and checks the result.

    make demo

It starts a Kafka broker, and then works like a user's job:

1. a batch write appends each flight from New York in 2013 to the topic `flights`, as JSON;
2. meanwhile a streaming query reads the flights, sums the delays of each airline, and writes the
   sums to the topic `flight_stats`;
3. a batch read of that topic shows the result, which is then compared with pandas' result.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from demo_flights import expected, unpack
from demo_screen import bars, console, show, step, watched
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_pykafka.testing import KafkaCluster
from pyspark_pykafka.testing.jars import cache_folder

FLIGHTS, STATS = "flights", "flight_stats"
FLIGHT = "carrier STRING, flight INT, origin STRING, dest STRING, dep_delay INT, arr_delay INT"
FLIGHTS_PER_BATCH = 20_000
TIMEOUT_SECONDS = 600
STATISTIC = "flights BIGINT, arrived BIGINT, delay BIGINT, worst INT"
SPARK_SETTINGS = {
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def write_flights(flights: DataFrame, bootstrap_servers: str) -> None:
    """
    Write each flight as JSON, with its airline as key and its scheduled hour as timestamp.
    """
    flight = F.struct("carrier", "flight", "origin", "dest", "dep_delay", "arr_delay")
    records = flights.select(
        F.col("carrier").alias("key"),
        F.to_json(flight).alias("value"),
        F.col("time_hour").alias("timestamp"),
    )
    (
        records.write.format("pykafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("topic", FLIGHTS)
        .mode("append")
        .save()
    )


def read_flights(spark: SparkSession, bootstrap_servers: str) -> DataFrame:
    """
    Return the flights as a stream of typed columns.
    """
    records = (
        spark.readStream.format("pykafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", FLIGHTS)
        .option("startingOffsets", "earliest")
        # Small micro-batches, so that the progress bar moves.
        .option("maxOffsetsPerTrigger", FLIGHTS_PER_BATCH)
        .load()
    )
    return records.select(F.from_json(records.value.cast("string"), FLIGHT).alias("f")).select(
        "f.*"
    )


def delays(flights: DataFrame) -> DataFrame:
    """
    Return the flights, the arrivals, and the sum and maximum of delays in minutes, by airline.
    """
    return flights.groupBy("carrier").agg(
        F.count("*").alias("flights"),
        F.count("arr_delay").alias("arrived"),
        F.sum("arr_delay").alias("delay"),
        F.max("arr_delay").alias("worst"),
    )


def write_statistics(statistics: DataFrame, servers: str, checkpoint: str) -> StreamingQuery:
    """
    Start the query that writes the records of all airlines again with each micro-batch.
    """
    value = F.to_json(F.struct("flights", "arrived", "delay", "worst")).alias("value")
    return (
        statistics.select(F.col("carrier").alias("key"), value)
        .writeStream.format("pykafka")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", STATS)
        .option("checkpointLocation", checkpoint)
        .outputMode("complete")
        .start()
    )


def read_statistics(spark: SparkSession, bootstrap_servers: str) -> list[Row]:
    """
    Return the newest record of each airline.
    """
    records = (
        spark.read.format("pykafka")
        .schema("offset BIGINT, key STRING, value STRING")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", STATS)
        .load()
    )
    newest = records.groupBy(records.key.alias("carrier")).agg(
        F.max_by("value", "offset").alias("v")
    )
    columns = newest.select("carrier", F.from_json("v", STATISTIC).alias("s")).select(
        "carrier", "s.*"
    )
    return columns.orderBy(F.desc("flights")).collect()


def wait_for(query: StreamingQuery, total: int) -> None:
    """
    Wait until the query has read ``total`` records; raise its error if it fails.
    """
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while rows_read(query) < total:
        query.awaitTermination(1)
        if time.monotonic() > deadline:
            msg = f"The query read {rows_read(query):,} of {total:,} records in {TIMEOUT_SECONDS} s"
            raise TimeoutError(msg)


def rows_read(query: StreamingQuery) -> int:
    """
    Return the number of records that the query has read so far.
    """
    return sum(batch["numInputRows"] for batch in query.recentProgress)


def records_in(admin: AdminClient, topic: str) -> int:
    """
    Return the number of records in a topic so far.
    """
    partitions = admin.list_topics(topic, timeout=30).topics[topic].partitions
    ends = admin.list_offsets({TopicPartition(topic, p): OffsetSpec.latest() for p in partitions})
    return sum(int(end.result(timeout=30).offset) for end in ends.values())


def check(statistics: list[Row], csv: Path, limit: int) -> None:
    """
    Compare the result with pandas, and exit with an error if any number differs.
    """
    actual = {row.carrier: (row.flights, row.arrived, row.delay, row.worst) for row in statistics}
    computed = expected(csv, limit)
    if actual != computed:
        sys.exit(f"The result differs from that of pandas: {actual} is not {computed}")
    total = sum(row.flights for row in statistics)
    console.print(
        f"pandas computes the same from the file: {total:,} flights, none lost or duplicated."
    )


def start_spark() -> SparkSession:
    """
    Start Spark in this process, with as little output as possible.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName("pykafka-demo").master("local[4]")
    for name, setting in SPARK_SETTINGS.items():
        builder = builder.config(name, setting)
    return builder.getOrCreate()


def load_flights(spark: SparkSession, csv: Path, limit: int) -> DataFrame:
    """
    Return the flights in two partitions, which leaves two of four cores to the streaming query.
    """
    flights = spark.read.csv(str(csv), header=True, nullValue="NA", inferSchema=True)
    return flights.limit(limit).repartition(2).cache()


def run(kafka: KafkaCluster, spark: SparkSession, folder: Path, limit: int) -> None:
    """
    Run the three steps and the check.
    """
    with step("Loading the flights"):
        csv, names = unpack(folder)
        flights = load_flights(spark, csv, limit)
        total = flights.count()
    # The records' timestamps are from 2013, and brokers delete records after a week by default.
    kafka.create_topic(FLIGHTS, partitions=2, config={"retention.ms": -1})
    kafka.create_topic(STATS)
    admin = kafka.admin()
    statistics = delays(read_flights(spark, kafka.bootstrap))
    query = write_statistics(statistics, kafka.bootstrap, str(folder / "checkpoint"))
    with (
        bars() as progress,
        watched(progress, "written to flights", total, lambda: records_in(admin, FLIGHTS)),
        watched(progress, "read by the stream", total, lambda: rows_read(query)),
    ):
        write_flights(flights, kafka.bootstrap)
        wait_for(query, total)
    query.stop()
    result = read_statistics(spark, kafka.bootstrap)
    show(result, names)
    check(result, csv, limit)


def main() -> None:
    parser = argparse.ArgumentParser(description="Send real flights through Kafka and Spark.")
    parser.add_argument(
        "--flights", type=int, default=336_776, help="number of flights; default: all"
    )
    limit = parser.parse_args().flights

    with ExitStack() as servers:
        with step("Starting a Kafka broker", downloads=cache_folder()):
            kafka = servers.enter_context(KafkaCluster())
        with step("Starting Spark"):
            spark = start_spark()
        folder = servers.enter_context(tempfile.TemporaryDirectory())
        run(kafka, spark, Path(folder), limit)
        spark.stop()


if __name__ == "__main__":
    main()
