"""
A job for a cluster: a batch read, and a stream with a MetricsListener; its result is a line of
JSON.

Its arguments are the options of the batch and of the stream, as JSON, and a folder.
"""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import urlopen

from pyspark.sql import SparkSession

from pyspark_pykafka import MetricsListener

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SECONDS = 120


class Lines(logging.Handler):
    """
    The lines of the connector's log in the driver program.
    """

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def scraped(metrics: MetricsListener) -> str:
    """
    Return the page that Prometheus scrapes.
    """
    with urlopen(f"http://127.0.0.1:{metrics.port}/metrics", timeout=SECONDS) as response:
        text: str = response.read().decode()
    return text


def main() -> None:
    batch, stream, folder = json.loads(sys.argv[1]), json.loads(sys.argv[2]), Path(sys.argv[3])
    spark = SparkSession.builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    count = spark.read.format("pykafka").options(**batch).load().count()

    lines, logger = Lines(), logging.getLogger("pyspark_pykafka")
    logger.setLevel(logging.INFO)
    logger.addHandler(lines)
    metrics = MetricsListener(port=0, log_seconds=0)
    spark.streams.addListener(metrics)
    pages: list[str] = []

    def scrape_second(frame: DataFrame, number: int) -> None:
        frame.count()
        if number:
            pages.append(scraped(metrics))

    query = (
        spark.readStream.format("pykafka")
        .options(**stream)
        .load()
        .writeStream.foreachBatch(scrape_second)
        .queryName("counted")
        .option("checkpointLocation", str(folder / "metrics-checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(SECONDS)
    spark.streams.removeListener(metrics)
    result = {"count": count, "pages": pages, "lines": lines.texts}
    print(json.dumps(result))  # noqa: T201
    metrics.close()
    spark.stop()


if __name__ == "__main__":
    main()
