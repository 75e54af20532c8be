"""
A driver in its own process: it runs the queries named by commands on its standard input, until it
is killed.

Commands are lines of JSON; events are written to a file of JSON lines. Faults are injected from
outside this process. A query that fails is restarted, as a user would with `supervise`.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
import time
import uuid
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as Spark's users know it)
from pyspark.sql.streaming.listener import StreamingQueryListener

from pyspark_pykafka.failures.restarts import QueryFailure, RestartPolicy, is_fatal, supervise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

POLICY = RestartPolicy(initial_delay=0.5, max_delay=5.0, attempts=None)
POLL_SECONDS = 1.0
#: Spark drops events that are not newer than its first watermark, the start of 1970.
FIRST_SECOND = 1_000_000_000
MEGABYTE = 1 << 20
#: Spark gives a Python process ten seconds to start, which is too short for many at once.
STARTING = threading.Lock()
START_SECONDS, START_POLL_SECONDS = 30.0, 0.2

Query = dict[str, Any]


class Events:
    """
    The file of events; each event is one line, written at once.
    """

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def add(self, event: str, **fields: Any) -> None:
        line = json.dumps({"event": event, "at": time.time(), **fields})
        os.write(self._file, f"{line}\n".encode())


# --- What queries compute -------------------------------------------------------------------------


def records(spark: SparkSession, query: Query, topic: int = 0) -> DataFrame:
    """
    Return the stream of a topic: the value, and the fields parsed from it.
    """
    read = (
        spark.readStream.format("pykafka")
        .options(**query["source"], subscribe=query["topics"][topic])
        .option("startingOffsets", "earliest")
        .load()
    )
    text = F.split(F.split(F.col("value").cast("string"), r"\|")[0], "/")
    number = text[2].cast("long")
    return read.select(
        F.split(F.col("value").cast("string"), r"\|")[0].alias("text"),
        text[1].cast("int").alias("of"),
        number.alias("number"),
        (number % query["keys"]).cast("string").alias("key"),
        F.timestamp_seconds(number + FIRST_SECOND).alias("at"),
    )


def plain(spark: SparkSession, query: Query) -> DataFrame:
    frame = records(spark, query)
    return frame.select("text", "key", F.col("of").alias("partition"))


def copied(spark: SparkSession, query: Query, topic: int = 0) -> DataFrame:
    return records(spark, query, topic).select("text", "key")


def union(spark: SparkSession, query: Query) -> DataFrame:
    return copied(spark, query).union(copied(spark, query, 1))


def windowed(spark: SparkSession, query: Query) -> DataFrame:
    counts = (
        records(spark, query)
        .withWatermark("at", f"{query['delay']} seconds")
        .groupBy(F.window("at", f"{query['window']} seconds"), "key")
        .agg(F.count("*").alias("count"))
    )
    start = (F.unix_timestamp("window.start") - FIRST_SECOND).alias("start")
    columns = counts.select("key", start, "count")
    return columns.select(
        F.format_string("windowed/%s/%d=%d", "key", "start", "count").alias("text"), "key"
    )


def complete(spark: SparkSession, query: Query) -> DataFrame:
    counts = records(spark, query).groupBy("key").agg(F.count("*").alias("count"))
    return counts.select(F.format_string("complete/%s=%d", "key", "count").alias("text"), "key")


def joined(spark: SparkSession, query: Query) -> DataFrame:
    delay = f"{query['delay']} seconds"
    left_side = records(spark, query).withWatermark("at", delay).alias("left")
    right_side = records(spark, query, 1).withWatermark("at", delay).alias("right")
    same = F.expr(
        "left.of = right.of AND left.number = right.number "
        "AND right.at BETWEEN left.at AND left.at + INTERVAL 1 HOUR"
    )
    pairs = left_side.join(right_side, same).select("left.of", "left.number", "left.key")
    return pairs.select(F.format_string("join/%d/%d", "of", "number").alias("text"), "key")


def rate(spark: SparkSession, query: Query) -> DataFrame:
    rows = (
        spark.readStream.format("rate-micro-batch")
        .options(rowsPerBatch=query["rows_per_batch"], numPartitions=2)
        .load()
    )
    return rows.select(
        F.format_string("rate/0/%d", "value").alias("text"),
        F.col("value").cast("string").alias("key"),
    )


SHAPES: dict[str, Callable[[SparkSession, Query], DataFrame]] = {
    "plain": plain,
    "repartition": lambda spark, query: copied(spark, query).repartition(4),
    "by-key": lambda spark, query: copied(spark, query).repartition(3, "key"),
    "union": union,
    "coalesce": lambda spark, query: copied(spark, query).coalesce(1),
    "windowed": windowed,
    "complete": complete,
    "join": joined,
    "rate": rate,
}


def tagged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """
    Append the micro-batch and an id of this task attempt to each row.
    """
    import uuid

    import pyarrow as pa
    import pyarrow.compute as pc
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    batch = context.getLocalProperty("streaming.sql.batchId")
    tag = f"|{batch}.{context.partitionId()}.{context.attemptNumber()}.{uuid.uuid4().hex[:8]}"
    for rows in batches:
        text = pc.binary_join_element_wise(rows.column("text"), pa.scalar(tag), "")
        columns = {name: rows.column(name) for name in rows.schema.names}
        columns["value"] = text
        del columns["text"]
        yield pa.RecordBatch.from_pydict(columns)


# --- Running them ---------------------------------------------------------------------------------


class Progress(StreamingQueryListener):
    """
    Writes each micro-batch to the events.
    """

    def __init__(self, events: Events) -> None:
        self._events = events

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 (Spark's name)
        """
        Ignore the event: the query's own thread reports the start.
        """

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 (likewise)
        """
        Ignore the event.
        """

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 (likewise)
        """
        Ignore the event: the query's own thread reports the end.
        """

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 (likewise)
        progress = event.progress
        self._events.add(
            "progress",
            query=progress.name,
            batch=progress.batchId,
            rows=progress.numInputRows,
            seconds=progress.durationMs.get("triggerExecution", 0) / 1000,
            late=sum(state.numRowsDroppedByWatermark for state in progress.stateOperators),
        )


class RunningQuery:
    """
    A thread that restarts a query until it gets the command to finish, or fails permanently.
    """

    def __init__(self, spark: SparkSession, query: Query, events: Events) -> None:
        self.query = query
        self.active: StreamingQuery | None = None
        self._spark, self._events = spark, events
        self._name = query["name"]
        self._finishing = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        """
        Process all available records, including results that need another micro-batch, and stop;
        retry after a failure.
        """
        while self._thread.is_alive() and not self._finished():
            time.sleep(POLL_SECONDS)
        self._finishing.set()
        while self._thread.is_alive():
            if self.active is not None:
                self.active.stop()
            self._thread.join(POLL_SECONDS)
        self._events.add("finished", query=self._name)

    def _finished(self) -> bool:
        if self.active is None:
            return False
        if self.query["shape"] == "rate":
            return True
        try:
            self.active.processAllAvailable()
        except Exception:  # noqa: BLE001 (reported by the thread, which restarts the query)
            return False
        return True

    def _run(self) -> None:
        try:
            # Spark looks up Python data sources in the thread's active session; this sets it.
            self._spark.createDataFrame([], "value binary")
            supervise(self._start, POLICY, self._report)
        except Exception as error:  # noqa: BLE001 (part of the verdict)
            self._events.add("ended", query=self._name, error=str(error), fatal=is_fatal(error))

    def _report(self, failure: QueryFailure) -> None:
        if not self._finishing.is_set():
            self._events.add(
                "failure",
                query=self._name,
                error=str(failure.error),
                is_restarted=failure.pause_seconds is not None,
            )

    def _start(self) -> StreamingQuery:
        query = self.query
        frame = SHAPES[query["shape"]](self._spark, query)
        writer = self._kept(frame) if query["sink"] is None else self._written(frame, query["sink"])
        writer = (
            writer.option("checkpointLocation", query["checkpoint"])
            .queryName(query["name"])
            .outputMode("complete" if query["shape"] == "complete" else "append")
            .trigger(processingTime=query["trigger"])
        )
        with STARTING:
            self.active = writer.start()
            self._events.add("started", query=self._name)
            await_sources(self.active)
        return self.active

    def _written(self, frame: DataFrame, sink: dict[str, str]) -> Any:
        partition = ", partition INT" if "partition" in frame.columns else ""
        rows = frame.mapInArrow(tagged, f"key STRING{partition}, value STRING")
        return rows.writeStream.format("pykafka").options(**sink)

    def _kept(self, frame: DataFrame) -> Any:
        return frame.select("text").writeStream.foreachBatch(
            partial(keep, self.query, self._events)
        )


def await_sources(query: StreamingQuery) -> None:
    """
    Return once the sources are initialised, the query has failed, or the time is up.
    """
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and query.isActive:
        if "Initializing" not in query.status["message"]:
            return
        time.sleep(START_POLL_SECONDS)


def keep(query: Query, events: Events, frame: DataFrame, batch: int) -> None:
    """
    Write a micro-batch to its own file; a replay must have the same rows.
    """
    rows = frame.toArrow().column("text").to_pylist()
    file = Path(query["kept"]) / f"{batch}.json"
    if file.exists():
        if sorted(json.loads(file.read_text())) != sorted(rows):
            events.add("replay differs", query=query["name"], batch=batch)
        return
    hidden = file.with_name(f".{batch}.{uuid.uuid4().hex}")
    hidden.write_text(json.dumps(rows))
    hidden.rename(file)


def measured(spark: SparkSession) -> dict[str, int]:
    """
    Return the resources of this process and its JVM after a garbage collection in both.
    """
    gc.collect()
    jvm: Any = spark.sparkContext._jvm
    jvm.java.lang.System.gc()
    runtime = jvm.java.lang.Runtime.getRuntime()
    java = psutil.Process(int(jvm.java.lang.ProcessHandle.current().pid()))
    process = psutil.Process()
    return {
        "files": process.num_fds(),
        "threads": process.num_threads(),
        "megabytes": process.memory_info().rss // MEGABYTE,
        "jvm_files": java.num_fds(),
        "jvm_threads": java.num_threads(),
        "jvm_heap_megabytes": (runtime.totalMemory() - runtime.freeMemory()) // MEGABYTE,
    }


def serve(spark: SparkSession, events: Events) -> None:
    """
    Execute the commands from standard input until it ends.
    """
    running: dict[str, RunningQuery] = {}
    for line in sys.stdin:
        command = json.loads(line)
        name = command.get("name")
        if command["do"] == "start":
            running[name] = RunningQuery(spark, command["query"], events)
            running[name].start()
        elif command["do"] == "finish":
            query = running.pop(name)
            threading.Thread(target=query.finish, daemon=True).start()
        elif command["do"] == "measure":
            events.add("measured", id=command["id"], **measured(spark))


def main() -> None:
    """
    Start Spark, report ``ready``, and execute commands.
    """
    arguments = json.loads(sys.argv[1])
    builder = SparkSession.builder
    for name, value in arguments["conf"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    events = Events(arguments["events"])
    spark.streams.addListener(Progress(events))
    events.add("ready")
    serve(spark, events)
    os._exit(0)


if __name__ == "__main__":
    main()
