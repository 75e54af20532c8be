"""
A job in its own process: an exactly-once stream that copies a topic to its end, in many small
micro-batches, and records its progress in a consumer group.

Arguments: bootstrap servers, checkpoint, and as JSON the ``source``, the ``target``, the ``rows``
of a micro-batch and whether each task of the sink ``leaks`` a file and a thread.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from tests.support.short_jvm import SHORT_DRIVER

from pyspark_pykafka import ProgressListener
from pyspark_pykafka.options import parse_sink
from pyspark_pykafka.spark.datasource import DefaultSource
from pyspark_pykafka.spark.writers import KafkaStreamWriter, KafkaWriterCommitMessage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.types import StructType


class LeakingSource(DefaultSource):
    """
    The connector, with a leak planted into its sink.
    """

    @classmethod
    def name(cls) -> str:
        """
        Return the name for ``.format(...)``.
        """
        return "leaking"

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: ARG002, N802 (Spark's name)
        """
        Return the writer with the leak.
        """
        return LeakingWriter(parse_sink(dict(self.options), streaming=True), schema)


class LeakingWriter(KafkaStreamWriter):
    """
    A writer whose tasks each leave a file open and a thread running in their worker.
    """

    def write(self, iterator: Iterator[Any]) -> KafkaWriterCommitMessage:
        """
        Write the rows, and leak.
        """
        os.open(os.devnull, os.O_RDONLY)
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        return super().write(iterator)


bootstrap, checkpoint, text = sys.argv[1:]
job = json.loads(text)
servers = {"kafka.bootstrap.servers": bootstrap}

builder = SparkSession.builder.config("spark.ui.enabled", "false")
local = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
for name, value in {"spark.master": "local[2]", **local, **SHORT_DRIVER}.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.dataSource.register(LeakingSource)
reading = {
    **servers,
    "subscribe": job["source"],
    "startingOffsets": "earliest",
    "progressStore": "consumerGroup",
    "kafka.group.id": job["target"],
}
spark.streams.addListener(ProgressListener(reading))
source = (
    spark.readStream.format("pykafka")
    .options(**reading)
    .option("maxOffsetsPerTrigger", job["rows"])
    # Otherwise the driver would read such small batches itself, and one task would write them.
    .option("minPartitions", 1)
    .load()
)
query = (
    source.select("key", "value")
    .writeStream.format("leaking" if job["leaks"] else "pykafka")
    .options(**servers, topic=job["target"], checkpointLocation=checkpoint)
    .options(deliveryGuarantee="exactly-once", transactionalIdPrefix=job["target"])
    .start()
)
query.processAllAvailable()
query.stop()
