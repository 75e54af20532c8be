"""
A job for a cluster: a batch read and a stream into another topic; the result is a line of JSON.

Its last argument is the code of docs/deploying.md that registers the format, or nothing.
"""

from __future__ import annotations

import json
import sys
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING

from pyspark import SparkFiles
from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def imported_from(_: Iterable[int]) -> Iterator[tuple[str, bool, bool]]:
    """
    Yield the path from which a worker imports the package, whether the compiled modules are there,
    and whether Spark has sent the worker a file with the package.
    """
    import pyspark_pykafka
    from pyspark_pykafka.spark.compiled_modules import missing_compiled_modules

    sent = [path for path in sys.path if path.startswith(SparkFiles.getRootDirectory())]
    has_own_copy = PathFinder.find_spec("pyspark_pykafka", sent) is not None
    yield str(pyspark_pykafka.__file__), not missing_compiled_modules(), has_own_copy


def main() -> None:
    servers, source, target, guarantee, checkpoint, registration = sys.argv[1:]
    spark = SparkSession.builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    exec(registration, {})  # noqa: S102 (our own page)
    imports = spark.sparkContext.parallelize(range(8), 8).mapPartitions(imported_from).collect()
    brokers = {"kafka.bootstrap.servers": servers}
    source_rows = spark.read.format("pykafka").options(**brokers, subscribe=source).load()
    sink_options = {**brokers, "topic": target, "deliveryGuarantee": guarantee}
    if guarantee == "exactly-once":
        sink_options["transactionalIdPrefix"] = target
    query = (
        spark.readStream.format("pykafka")
        .options(**brokers, subscribe=source, startingOffsets="earliest")
        .load()
        .select("key", "value")
        .writeStream.format("pykafka")
        .options(**sink_options)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    count = source_rows.count()
    query.awaitTermination()
    print(json.dumps({"count": count, "imports": sorted(set(imports))}))  # noqa: T201
    spark.stop()


if __name__ == "__main__":
    main()
