"""
Runs the connector through Spark Connect in one client session, and prints the results as JSON. It
is a separate process, since a Python process has either a classic session or a Connect session.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from tests.support.page_blocks import blocks_of

from pyspark_pykafka import (
    AuditListener,
    Auditor,
    DeadLetterTopic,
    MetricsListener,
    ProgressListener,
    isolate_poison,
    mount,
    supervise,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from pyspark_pykafka.audit.report import AuditReport

AUDIT_SECONDS = 60
REMOTE = "local[2]"


class Job:
    """
    The steps of one session; each returns a result that the test compares.
    """

    def __init__(self, spark: SparkSession, servers: str, names: dict[str, str]) -> None:
        self.spark = spark
        self.brokers = {"kafka.bootstrap.servers": servers}
        self.names = names
        self.read = {**self.brokers, "subscribe": names["source"]}
        self.stream = {**self.read, "startingOffsets": "earliest"}

    def batch_read(self) -> int:
        return self.spark.read.format("pykafka").options(**self.read).load().count()

    def page(self) -> str:
        """
        Run the blocks of the page, and return the columns of its stream.
        """
        scope: dict[str, Any] = {"spark": self.spark}
        for block in blocks_of("docs/connect.md"):
            text = block.text.replace("sc://spark-server:15002", REMOTE)
            text = text.replace("broker:9092", self.brokers["kafka.bootstrap.servers"])
            text = text.replace('"flights"', repr(self.names["source"]))
            exec(text, scope)  # noqa: S102 (our own page)
        return str(scope["flights"].schema.simpleString())

    def sql(self) -> int:
        (view,) = mount(self.spark, self.brokers, pattern=f"^{self.names['source']}$", prefix="k_")
        return int(self.spark.sql(f"SELECT count(*) FROM `{view}`").collect()[0][0])  # noqa: S608

    def batch_write(self) -> None:
        self._save("from the main thread")
        thread = threading.Thread(target=self._save, args=("from another thread",))
        thread.start()
        thread.join()

    def exactly_once(self) -> str:
        rows = self._load().select("key", "value")
        writer = rows.writeStream.format("pykafka").options(
            **self.brokers,
            topic=self.names["once"],
            deliveryGuarantee="exactly-once",
            checkpointLocation=self._folder("once"),
        )
        return _ended(writer.trigger(availableNow=True).start())

    def poison(self) -> str:
        folder, session = self._folder("rows"), self.brokers

        def sink(frame: DataFrame, _: int) -> None:
            # A value that is not an integer fails the write.
            frame.selectExpr("cast(cast(value as string) as int) AS number").write.mode(
                "append"
            ).parquet(folder)

        dead = DeadLetterTopic(self.names["dead"], session)
        writer = self._load().writeStream.foreachBatch(isolate_poison(sink, dead))
        writer = writer.option("checkpointLocation", self._folder("poison"))
        outcome = _ended(writer.trigger(availableNow=True).start())
        # The poison record is the last one, so a good record is written once more after it.
        return f"{outcome} {self.spark.read.parquet(folder).distinct().count()}"

    def listeners(self) -> dict[str, Any]:
        options = {**self.stream, "kafka.group.id": self.names["group"]}
        options["progressStore"] = "consumerGroup"
        reports: list[AuditReport] = []
        reported = threading.Event()

        def on_report(report: AuditReport) -> None:
            reports.append(report)
            reported.set()

        auditor = Auditor("connect", options=options)
        # The listeners get each event in this order, so the metrics are complete at the report.
        metrics = MetricsListener(port=0)
        listeners = [
            metrics,
            ProgressListener(options),
            AuditListener(auditor, on_report=on_report),
        ]
        for listener in listeners:
            self.spark.streams.addListener(listener)
        source = self.spark.readStream.format("pykafka").options(**options).load()
        rows = auditor.sink(auditor.source(source))
        writer = rows.writeStream.format("noop")
        writer = writer.option("checkpointLocation", self._folder("audit"))
        outcome = _ended(writer.trigger(availableNow=True).start())
        in_time = reported.wait(AUDIT_SECONDS)
        for listener in listeners:
            self.spark.streams.removeListener(listener)
        metrics.close()
        read = [p.read for query in metrics.snapshot().queries for p in query.partitions]
        return {
            "ended": outcome,
            "in_time": in_time,
            "complete": [r.is_complete for r in reports],
            "read": sum(read),
        }

    def supervised(self) -> int:
        starts = []

        def start() -> Any:
            starts.append(1)
            writer = self._load().writeStream.format("noop")
            writer = writer.option("checkpointLocation", self._folder("supervised"))
            return writer.trigger(availableNow=True).start()

        supervise(start)
        return len(starts)

    def errors(self) -> dict[str, str]:
        """
        Return the text of the error of each mistake, without the server's stack trace.
        """
        self.spark.conf.set("spark.sql.connect.serverStacktrace.enabled", "false")
        mistakes = (
            self._misspelt_in_a_batch,
            self._misspelt_in_a_stream,
            self._write_to_a_missing_topic,
            self._stream_to_a_missing_topic,
            self._record_that_is_not_json,
        )
        return {mistake.__name__.strip("_"): _error_of(mistake) for mistake in mistakes}

    def _misspelt_in_a_batch(self) -> None:
        reader = self.spark.read.format("pykafka").options(**self.read, startingOffset="earliest")
        reader.load().collect()

    def _misspelt_in_a_stream(self) -> None:
        reader = self.spark.readStream.format("pykafka").schema("value BINARY")
        rows = reader.options(**self.stream, startingOffset="earliest").load()
        writer = rows.writeStream.format("noop")
        writer = writer.option("checkpointLocation", self._folder("misspelt"))
        writer.trigger(availableNow=True).start().awaitTermination()

    def _write_to_a_missing_topic(self) -> None:
        frame = self.spark.createDataFrame([("v",)], "value string")
        options = {**self.brokers, "topic": f"{self.names['written']}-missing"}
        frame.write.format("pykafka").options(**options).mode("append").save()

    def _stream_to_a_missing_topic(self) -> None:
        options = {**self.brokers, "topic": f"{self.names['written']}-missing"}
        writer = self._load().select("value").writeStream.format("pykafka").options(**options)
        writer = writer.option("checkpointLocation", self._folder("missing"))
        writer.trigger(availableNow=True).start().awaitTermination()

    def _record_that_is_not_json(self) -> None:
        reader = self.spark.read.format("pykafka").options(**self.read)
        reader = reader.options(valueFormat="json", onBadRecord="fail")
        reader.schema("value STRUCT<a: INT>").load().collect()

    def _load(self) -> DataFrame:
        return self.spark.readStream.format("pykafka").options(**self.stream).load()

    def _save(self, value: str) -> None:
        frame = self.spark.createDataFrame([(value,)], "value string")
        options = {**self.brokers, "topic": self.names["written"]}
        frame.write.format("pykafka").options(**options).mode("append").save()

    def _folder(self, name: str) -> str:
        return str(Path(self.names["folder"]) / name)


def _error_of(mistake: Callable[[], None]) -> str:
    try:
        mistake()
    except Exception as error:  # noqa: BLE001 (any error of the client is a result)
        return str(error)
    return "no error"


def _ended(query: Any) -> str:
    query.awaitTermination()
    error = query.exception()
    return "ended" if error is None else str(error)


def main() -> None:
    """
    Run all steps and print their results.
    """
    servers, names = sys.argv[1], json.loads(sys.argv[2])
    spark = SparkSession.builder.remote(REMOTE).getOrCreate()
    job = Job(spark, servers, names)
    steps: list[Callable[[], Any]] = [
        job.batch_read,
        job.page,
        job.sql,
        job.batch_write,
        job.exactly_once,
        job.poison,
        job.listeners,
        job.supervised,
        job.errors,
    ]
    results = {}
    for step in steps:
        started_at = time.monotonic()
        results[step.__name__] = step()
        # A test that times out shows how far it has come.
        seconds = time.monotonic() - started_at
        print(f"{step.__name__}: {seconds:.1f} s", file=sys.stderr, flush=True)  # noqa: T201
    spark.stop()
    sys.stdout.write(json.dumps(results))


if __name__ == "__main__":
    main()
