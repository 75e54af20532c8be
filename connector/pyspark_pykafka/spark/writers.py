"""
Spark's writers of batches and streams: adapters to the delivery guarantee that the user chose.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql import datasource as spark

from pyspark_pykafka.engines.selection import check_brokers, check_topic
from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.schema import SINK_COLUMNS, check_sink_schema
from pyspark_pykafka.sink.delivery import SinkTask, TaskCommitMessage, make_delivery
from pyspark_pykafka.spark.compat import ARROW_STREAM_WRITER, arrow_schema, rows_to_batches
from pyspark_pykafka.spark.error_report import reports_errors
from pyspark_pykafka.spark.worker import (
    NO_BATCH,
    freeze_loaded_modules,
    micro_batch_id,
    rows_until_end_of_task,
    stop_check,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pyspark_pykafka.formats.write_format import WriteFormat
    from pyspark_pykafka.options import SinkOptions

    Messages = Sequence[spark.WriterCommitMessage | None]

# The local property in which Spark passes a streaming query's id to its tasks.
_QUERY = "sql.streaming.queryId"


@dataclass(frozen=True, slots=True)
class KafkaWriterCommitMessage(spark.WriterCommitMessage):
    """
    A task's commit message to the driver: the brokers have acknowledged all its rows.
    """

    task_message: TaskCommitMessage


@reports_errors
class _Writer:
    """
    Shared by batch and stream writers; when ``write`` returns, all rows are acknowledged.
    """

    def __init__(self, options: SinkOptions, schema: StructType, *, streaming: bool) -> None:
        rows = arrow_schema(schema)
        self._topic = options.topic
        self._format = _write_format(options, rows)
        records = rows if self._format is None else self._format.record_schema
        check_sink_schema(records, topic_option=options.topic is not None)
        self._delivery = make_delivery(options, streaming=streaming)
        self._format = _with_registered_write_schemas(self._format, options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> KafkaWriterCommitMessage:
        """
        Write a task's rows, on an executor.
        """
        freeze_loaded_modules()
        rows = self._encoded(rows_until_end_of_task(iterator))
        return KafkaWriterCommitMessage(self._delivery.write(rows, _task()))

    def _encoded(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if self._format is None:
            return rows
        # Imported here because each import delays the start of a task.
        from pyspark_pykafka.formats.record_encoder import RecordEncoder

        return RecordEncoder(self._format, self._topic).batches(rows)


def _write_format(options: SinkOptions, rows: pa.Schema) -> WriteFormat | None:
    if not options.encoding.encodes:
        return None
    from pyspark_pykafka.formats.write_format import make_write_format

    return make_write_format(options.encoding, rows)


def _with_registered_write_schemas(
    format_: WriteFormat | None, options: SinkOptions
) -> WriteFormat | None:
    if format_ is None or not format_.columns:
        return None
    from pyspark_pykafka.formats.schema_registration import with_registered_write_schemas

    return with_registered_write_schemas(format_, options.encoding, options.topic)


def _task() -> SinkTask:
    task = TaskContext.get()
    assert task is not None
    return SinkTask(
        task.partitionId(),
        task.attemptNumber(),
        task.getLocalProperty(_QUERY) or "",
        micro_batch_id(),
        task.taskAttemptId(),
        stop_check(),
    )


def _commit_messages(messages: Messages) -> list[TaskCommitMessage]:
    return [
        message.task_message
        for message in messages
        if isinstance(message, KafkaWriterCommitMessage)
    ]


@reports_errors
class KafkaBatchWriter(_Writer, spark.DataSourceArrowWriter):
    """
    Writes a batch at least once, or exactly once in transactions that the driver commits.
    """

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        super().__init__(options, schema, streaming=False)

    def commit(self, messages: list[spark.WriterCommitMessage | None]) -> None:
        """
        Commit the write, on the driver, after all tasks have succeeded.
        """
        self._delivery.commit(_commit_messages(messages), len(messages), NO_BATCH)

    def abort(self, messages: list[spark.WriterCommitMessage | None]) -> None:
        """
        Abort the write, on the driver, after a task has failed for good.
        """
        self._delivery.abort(_commit_messages(messages), len(messages))


@reports_errors
class _StreamWriter(_Writer):
    """
    Writes each micro-batch at least once or exactly once; after a failure Spark runs all tasks of
    the micro-batch again.
    """

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        super().__init__(options, schema, streaming=True)

    def commit(self, messages: list[spark.WriterCommitMessage | None], batchId: int) -> None:
        """
        Commit the micro-batch, on the driver, after all tasks have succeeded.
        """
        self._delivery.commit(_commit_messages(messages), len(messages), batchId)

    def abort(self, messages: list[spark.WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002 (Spark's name)
        """
        Abort the micro-batch, on the driver, after a task has failed for good.
        """
        self._delivery.abort(_commit_messages(messages), len(messages))


if ARROW_STREAM_WRITER:

    class KafkaStreamWriter(_StreamWriter, spark.DataSourceStreamArrowWriter):
        """
        Gets rows as Arrow batches.
        """

else:

    @reports_errors
    class KafkaStreamWriter(_StreamWriter, spark.DataSourceStreamWriter):  # type: ignore[no-redef]
        """
        Gets rows one by one: Spark 4.0 has no Arrow writer for streams.
        """

        def __init__(self, options: SinkOptions, schema: StructType) -> None:
            super().__init__(options, schema)
            if self._format is not None:
                msg = (
                    "valueFormat or keyFormat encodes a stream's rows, which needs Spark 4.1 or "
                    "newer; write to_json(...) or to_avro(...) without these options"
                )
                raise OptionsError((msg,))
            self._schema = schema

        def write(self, iterator: Iterator[Any]) -> KafkaWriterCommitMessage:
            """
            Write a task's rows, on an executor.
            """
            return super().write(rows_to_batches(iterator, self._schema, SINK_COLUMNS))


def check_destination(options: SinkOptions) -> None:
    """
    Raise an error, on the driver, if the brokers or the topic of the option ``topic`` cannot be
    found.
    """
    if options.topic is None:
        check_brokers(options.kafka, options.engine)
    else:
        check_topic(options.kafka, options.topic, options.engine)


def check_append_mode(*, overwrite: bool) -> None:
    """
    Raise :class:`OptionsError` for the save mode ``overwrite``: topics can only be appended to.
    """
    if overwrite:
        msg = (
            "the save mode is 'overwrite'; it must be 'append': records can be added to a topic, "
            "but not replaced"
        )
        raise OptionsError((msg,))
