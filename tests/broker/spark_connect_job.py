"""
Runs the connector through Spark Connect in one client session, and prints the results as JSON. It
is a separate process, since a Python process has either a classic session or a Connect session.

Its functions that fail on purpose run on the server, so each notes its first call in a file.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tests.support.page_blocks import blocks_of

from pyspark_pykafka import (
    AuditListener,
    Auditor,
    DeadLetterTopic,
    MetricsListener,
    ProgressListener,
    RestartPolicy,
    isolate_poison,
    mount,
    supervise,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from pyspark_pykafka.audit.report import AuditReport
    from pyspark_pykafka.failures.restarts import QueryFailure

AUDIT_SECONDS = 60
STARTS = 5
RESTARTS = RestartPolicy(initial_delay=0.1, max_delay=0.2, attempts=3)


class Job:
    """
    The steps of one session; each returns a result that the test compares.
    """

    def __init__(
        self, spark: SparkSession, remote: str, servers: str, names: dict[str, str]
    ) -> None:
        self.spark = spark
        self.remote = remote
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
            text = block.text.replace("sc://spark-server:15002", self.remote)
            text = text.replace("broker:9092", self.brokers["kafka.bootstrap.servers"])
            text = text.replace('"flights"', repr(self.names["source"]))
            exec(text, scope)  # noqa: S102 (our own page)
        return str(scope["flights"].schema.simpleString())

    def sql(self) -> int:
        (view,) = mount(self.spark, self.brokers, pattern=f"^{self.names['source']}$", prefix="k_")
        return int(self.spark.sql(f"SELECT count(*) FROM `{view}`").collect()[0][0])  # noqa: S608

    def sql_page(self) -> dict[str, Any]:
        """
        Run the blocks of the page on SQL, and return the rows of its query and of its views.
        """
        results = []
        for block in blocks_of("docs/sql.md"):
            text = block.text.replace("localhost:9092", self.brokers["kafka.bootstrap.servers"])
            if block.language == "python":
                exec(text, {"spark": self.spark})  # noqa: S102 (our own page)
            else:
                results.append(self.spark.sql(text).collect())
        overwrite = _error_of(
            lambda: self.spark.sql("INSERT OVERWRITE log VALUES ('k', 'x')").collect()
        )
        views = ("kafka_flights", "kafka.flights")
        return {
            "query": sorted(list(row) for row in results[1]),
            "views": [self.spark.table(name).count() for name in views],
            "overwrite": "the save mode is 'overwrite'" in overwrite,
        }

    def tables(self) -> dict[str, Any]:
        """
        Write two tables with options; return the rows of one, and the error without options.
        """
        self.spark.sql("CREATE TABLE events_of_job (key STRING, value STRING) USING pykafka")
        write = {**self.brokers, "topic": self.names["table"]}
        row = self.spark.createDataFrame([("k", "a")], "key string, value string")
        row.writeTo("events_of_job").options(**write).append()
        row.write.format("pykafka").options(**write).mode("append").saveAsTable("saved")
        source = {**self.brokers, "subscribe": self.names["table"]}
        rows = self.spark.read.options(**source).table("events_of_job").collect()
        return {
            "rows": [list(row) for row in rows],
            "without_options": _error_of(lambda: self.spark.table("saved").collect()),
            "without_columns": _error_of(lambda: self.spark.sql("CREATE TABLE t USING pykafka")),
        }

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
        outcome = _ended(_started(writer.trigger(availableNow=True)))
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
        lines = _LoggedLines()
        metrics = MetricsListener(port=0, log_seconds=0, options=options)
        listeners = [
            metrics,
            ProgressListener(options),
            AuditListener(auditor, on_report=on_report),
        ]
        for listener in listeners:
            self.spark.streams.addListener(listener)
        source = self.spark.readStream.format("pykafka").options(**options).load()
        rows = auditor.sink(auditor.source(source))
        writer = rows.writeStream.format("noop").queryName("audited")
        writer = writer.option("checkpointLocation", self._folder("audit"))
        query = writer.start()
        in_time = reported.wait(AUDIT_SECONDS)
        scraped = _scraped(metrics)
        query.stop()
        outcome = _ended(query)
        for listener in listeners:
            self.spark.streams.removeListener(listener)
        metrics.close()
        read = [p.read for query in metrics.snapshot().queries for p in query.partitions]
        return {
            "ended": outcome,
            "in_time": in_time,
            "complete": [r.is_complete for r in reports],
            "read": sum(read),
            "scraped": scraped,
            "logged": sum(line.startswith("query audited: micro-batch ") for line in lines.texts),
        }

    def counted_dead_letters(self) -> str:
        """
        Return the error of the part that does not work through Spark Connect.
        """
        metrics = MetricsListener()
        dead = metrics.count_dead_letters(DeadLetterTopic(self.names["dead"], self.brokers))
        function = isolate_poison(lambda *_: None, dead)
        return _error_of(lambda: self._load().writeStream.foreachBatch(function))

    def supervised(self) -> dict[str, Any]:
        """
        Supervise a query whose first attempt fails, and return its failures and the read rows.
        """
        failed, folder = Path(self._folder("failed-once")), self._folder("supervised-rows")

        def sink(frame: DataFrame, _: int) -> None:
            if not failed.exists():
                failed.touch()
                msg = "planted failure"
                raise ValueError(msg)
            frame.write.mode("append").parquet(folder)

        reported: list[QueryFailure] = []

        def start() -> Any:
            writer = self._load().writeStream.foreachBatch(sink)
            writer = writer.option("checkpointLocation", self._folder("supervised"))
            return _started(writer.trigger(availableNow=True))

        supervise(start, RESTARTS, reported.append)
        return {
            "failures": [[f.number, f.fatal, "planted failure" in str(f.error)] for f in reported],
            "rows": self.spark.read.parquet(folder).count(),
        }

    def supervised_data_loss(self) -> list[Any]:
        """
        Supervise a query that starts beyond the end of the log, and return its failures.
        """
        beyond = {self.names["source"]: {"0": 10_000, "1": 10_000}}
        reported: list[QueryFailure] = []

        def start() -> Any:
            reader = self.spark.readStream.format("pykafka").options(**self.stream)
            writer = reader.option("startingOffsets", json.dumps(beyond)).load().writeStream
            writer = writer.option("checkpointLocation", self._folder("lost")).format("noop")
            return writer.trigger(availableNow=True).start()

        error = _error_of(lambda: supervise(start, RESTARTS, reported.append))
        failures = [[failure.number, failure.fatal] for failure in reported]
        return [failures, "KAFKA_DATA_LOSS" in error]

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


class _LoggedLines(logging.Handler):
    """
    The lines of the connector's log in this process.
    """

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        logger = logging.getLogger("pyspark_pykafka")
        logger.setLevel(logging.INFO)
        logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def _scraped(metrics: MetricsListener) -> dict[str, float]:
    """
    Return the sum of each metric of the query, as Prometheus scrapes it.
    """
    with urlopen(f"http://127.0.0.1:{metrics.port}/metrics", timeout=30) as response:
        text = response.read().decode()
    totals: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.labels.get("query_name") == "audited":
                totals[sample.name] = totals.get(sample.name, 0.0) + sample.value
    return totals


def _error_of(mistake: Callable[[], Any]) -> str:
    try:
        mistake()
    except Exception as error:  # noqa: BLE001 (any error of the client is a result)
        return str(error)
    return "no error"


def _started(writer: Any) -> Any:
    """
    Start a query with a function. Spark gives the function's process 10 s to start, which is too
    short on a busy machine.
    """
    for _ in range(STARTS):
        try:
            return writer.start()
        except PySparkException as error:
            if "Python worker failed to connect back" not in str(error):
                raise
    return writer.start()


def _ended(query: Any) -> str:
    query.awaitTermination()
    error = query.exception()
    return "ended" if error is None else str(error)


def main() -> None:
    """
    Run the steps that are named, and print their results.
    """
    remote, servers = sys.argv[1:3]
    names, steps = map(json.loads, sys.argv[3:])
    spark = SparkSession.builder.remote(remote).getOrCreate()
    job = Job(spark, remote, servers, names)
    results = {}
    for name in steps:
        started_at = time.monotonic()
        results[name] = getattr(job, name)()
        # If the test times out, its output shows how far the job has come.
        seconds = time.monotonic() - started_at
        print(f"{name}: {seconds:.1f} s", file=sys.stderr, flush=True)  # noqa: T201
    spark.stop()
    sys.stdout.write(json.dumps(results))


if __name__ == "__main__":
    main()
