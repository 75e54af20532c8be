"""
A job for a cluster: typed Avro records of a topic go to another topic as JSON, exactly once, until
a file appears.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession


def main() -> None:
    reading, writing, checkpoint, stop = sys.argv[1:]
    spark = SparkSession.builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    query = (
        spark.readStream.format("pykafka")
        .options(**json.loads(reading))
        .load()
        .selectExpr("to_json(value) AS value")
        .writeStream.format("pykafka")
        .options(**json.loads(writing))
        .option("checkpointLocation", checkpoint)
        .start()
    )
    # An error of the query is raised here.
    while not query.awaitTermination(1):
        if Path(stop).exists():
            query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
