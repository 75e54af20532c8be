"""
Writing batches and streams: Spark's adapter around how often rows are to be delivered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql import datasource as spark

from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.schema import SINK_COLUMNS, check_sink_schema
from pyspark_pykafka.sink.delivery import SinkTask, TaskCommitMessage, make_delivery
from pyspark_pykafka.spark.compat import ARROW_STREAM_WRITER, arrow_schema, rows_to_batches
from pyspark_pykafka.spark.worker import freeze_loaded_modules, rows_until_end_of_task

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pyspark_pykafka.options import SinkOptions

    Messages = Sequence[spark.WriterCommitMessage | None]

# The names that Spark gives to what a task of a stream is told.
_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
_NO_BATCH = -1


@dataclass(frozen=True, slots=True)
class KafkaWriterCommitMessage(spark.WriterCommitMessage):
    """
    What a task tells the driver: every one of its rows was acknowledged.
    """

    task_message: TaskCommitMessage


class _Writer:
    """
    What batch and stream writers share; a write that returns has been acknowledged whole.
    """

    def __init__(self, options: SinkOptions, schema: StructType, *, streaming: bool) -> None:
        check_sink_schema(arrow_schema(schema), topic_option=options.topic is not None)
        self._delivery = make_delivery(options, streaming=streaming)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> KafkaWriterCommitMessage:
        """
        Write a task's rows, on an executor.
        """
        freeze_loaded_modules()
        return KafkaWriterCommitMessage(
            self._delivery.write(rows_until_end_of_task(iterator), _task())
        )


def _task() -> SinkTask:
    task = TaskContext.get()
    assert task is not None
    batch = task.getLocalProperty(_BATCH)
    return SinkTask(
        task.partitionId(),
        task.attemptNumber(),
        task.getLocalProperty(_QUERY) or "",
        _NO_BATCH if batch is None else int(batch),
        task.taskAttemptId(),
    )


def _commit_messages(messages: Messages) -> list[TaskCommitMessage]:
    return [
        message.task_message
        for message in messages
        if isinstance(message, KafkaWriterCommitMessage)
    ]


class KafkaBatchWriter(_Writer, spark.DataSourceArrowWriter):
    """
    Writes a batch at least once, or exactly once in transactions that the driver ends together.
    """

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        super().__init__(options, schema, streaming=False)

    def commit(self, messages: list[spark.WriterCommitMessage | None]) -> None:
        """
        Make everything visible, on the driver, once all tasks have written.
        """
        self._delivery.commit(_commit_messages(messages), len(messages), _NO_BATCH)

    def abort(self, messages: list[spark.WriterCommitMessage | None]) -> None:
        """
        Leave nothing visible, on the driver, after a task has failed for good.
        """
        self._delivery.abort(_commit_messages(messages), len(messages))


class _StreamWriter(_Writer):
    """
    Writes each micro-batch at least once, or exactly once; one that fails is written again whole.
    """

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        super().__init__(options, schema, streaming=True)

    def commit(self, messages: list[spark.WriterCommitMessage | None], batchId: int) -> None:
        """
        Make the micro-batch visible, on the driver, once all tasks have written.
        """
        self._delivery.commit(_commit_messages(messages), len(messages), batchId)

    def abort(self, messages: list[spark.WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002 (Spark's name)
        """
        Leave nothing visible, on the driver, after a task has failed for good.
        """
        self._delivery.abort(_commit_messages(messages), len(messages))


if ARROW_STREAM_WRITER:

    class KafkaStreamWriter(_StreamWriter, spark.DataSourceStreamArrowWriter):
        """
        Takes rows as Arrow batches.
        """

else:

    class KafkaStreamWriter(_StreamWriter, spark.DataSourceStreamWriter):  # type: ignore[no-redef]
        """
        Takes rows one by one: Spark 4.0 has no Arrow for streams.
        """

        def __init__(self, options: SinkOptions, schema: StructType) -> None:
            super().__init__(options, schema)
            self._schema = schema

        def write(self, iterator: Iterator[Any]) -> KafkaWriterCommitMessage:
            """
            Write a task's rows, on an executor.
            """
            return super().write(rows_to_batches(iterator, self._schema, SINK_COLUMNS))


def check_append_mode(*, overwrite: bool) -> None:
    """
    Refuse the save mode ``overwrite``: a topic can only be appended to.

    Raises :class:`OptionsError`.
    """
    if overwrite:
        msg = (
            "the save mode is 'overwrite'; it must be 'append': records are added to a topic, "
            "never replaced"
        )
        raise OptionsError((msg,))
