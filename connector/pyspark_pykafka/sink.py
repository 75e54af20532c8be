"""
Writing batches and streams: Spark's adapter around the engine's ``produce``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql import datasource as spark

from pyspark_pykafka.columns import SINK_COLUMNS, check_sink_schema
from pyspark_pykafka.compat import ARROW_STREAM_WRITER, arrow_schema, batches_of
from pyspark_pykafka.engines import prepare, produce, transactions_of
from pyspark_pykafka.errors import OptionsError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pyspark_pykafka.options import SinkOptions


@dataclass(frozen=True, slots=True)
class TaskWritten(spark.WriterCommitMessage):
    """
    What a task tells the driver: every one of these records was acknowledged.

    ``prepared`` says by what the transaction that holds them is ended: its name, producer id and
    epoch; None where there is no transaction.
    """

    records: int
    prepared: tuple[str, int, int] | None = None


class _Writer:
    """
    What batch and stream writers share; a write that returns has been acknowledged whole.
    """

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_sink_schema(arrow_schema(schema), topic_option=options.topic is not None)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskWritten:
        """
        Write a task's rows, on an executor.
        """
        options = self._options
        return TaskWritten(produce(iterator, options.kafka, options.topic, options.engine))


class KafkaBatchWriter(_Writer, spark.DataSourceArrowWriter):
    """
    Writes a batch at least once, or exactly once in transactions that the driver ends together.

    A task that fails half-way is run again as a whole. Each attempt has a transaction of its own,
    so none can harm another; whichever loses is aborted.
    """

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._prefix = options.transactional_id_prefix or f"pykafka-{uuid4().hex}"

    @property
    def _exactly_once(self) -> bool:
        return self._options.delivery_guarantee == "exactly-once"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskWritten:
        """
        Write a task's rows, on an executor.
        """
        if not self._exactly_once:
            return super().write(iterator)
        options = self._options
        task = TaskContext.get()
        assert task is not None
        name = f"{self._prefix}-{task.partitionId()}-{task.attemptNumber()}"
        return TaskWritten(*prepare(iterator, options.kafka, options.topic, name))

    def commit(self, messages: list[spark.WriterCommitMessage | None]) -> None:
        """
        Make everything visible, on the driver, once all tasks have written.
        """
        self._end(messages, commit=True)

    def abort(self, messages: list[spark.WriterCommitMessage | None]) -> None:
        """
        Leave nothing visible, on the driver, after a task has failed for good.
        """
        self._end(messages, commit=False)

    def _end(self, messages: list[spark.WriterCommitMessage | None], *, commit: bool) -> None:
        if self._exactly_once:
            # Nobody else needs it, and each import is a part of a task's start.
            from pyspark_pykafka.wire.ending import abort_all, commit_all

            written = [message for message in messages if isinstance(message, TaskWritten)]
            prepared = [it.prepared for it in written if it.prepared is not None]
            end = commit_all if commit else abort_all
            with transactions_of(self._options.kafka) as transactions:
                end(transactions, prepared, self._prefix)


if ARROW_STREAM_WRITER:

    class KafkaStreamWriter(_Writer, spark.DataSourceStreamArrowWriter):
        """
        Writes each micro-batch at least once: a batch that fails is written again as a whole.
        """

else:

    class KafkaStreamWriter(_Writer, spark.DataSourceStreamWriter):  # type: ignore[no-redef]
        """
        Writes each micro-batch at least once, from rows: Spark 4.0 has no Arrow for streams.
        """

        def __init__(self, options: SinkOptions, schema: StructType) -> None:
            super().__init__(options, schema)
            self._schema = schema

        def write(self, iterator: Iterator[Any]) -> TaskWritten:
            """
            Write a task's rows, on an executor.
            """
            return super().write(batches_of(iterator, self._schema, SINK_COLUMNS))


def refuse_overwrite(*, overwrite: bool) -> None:
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
