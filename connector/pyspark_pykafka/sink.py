"""
Writing batches and streams: Spark's adapter around the engine's ``produce``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource as spark

from pyspark_pykafka.columns import SINK_COLUMNS, check_sink_schema
from pyspark_pykafka.compat import ARROW_STREAM_WRITER, arrow_schema, batches_of
from pyspark_pykafka.engines import produce
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
    """

    records: int


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
    Writes a batch at least once: a task that fails half-way is run again as a whole.
    """


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
