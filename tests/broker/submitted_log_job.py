"""
A job for spark-submit: a batch read with a filter, and a stream that ends with the backlog.
"""

from __future__ import annotations

import sys
from tempfile import TemporaryDirectory

from pyspark.sql import SparkSession


def main() -> None:
    """
    Read the topic ``t`` of the given brokers in both ways.
    """
    options = {
        "kafka.bootstrap.servers": sys.argv[1],
        "kafka.debug": "protocol",
        "subscribe": "t",
        "startingOffsets": "earliest",
    }
    spark = SparkSession.builder.getOrCreate()
    batch = spark.read.format("pykafka").options(**options, pushDownFilters="true").load()
    batch.where("offset >= 3").collect()
    stream = spark.readStream.format("pykafka").options(**options).load()
    with TemporaryDirectory() as checkpoint:
        writer = stream.writeStream.format("noop").option("checkpointLocation", checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
