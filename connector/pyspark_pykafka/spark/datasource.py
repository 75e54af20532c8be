"""
The door that Spark comes through: the format ``pykafka`` with its readers and writers.

Spark makes these objects again in several short-lived processes, and calls the factory methods
more than once. So nothing here does I/O, and what only some of the processes need is imported
where it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql.datasource import DataSource

from pyspark_pykafka.spark.compat import arrow_schema, filter_pushdown_active, source_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    """
    Kafka as ``spark.read``, ``readStream``, ``write`` and ``writeStream`` see it.

    Spark finds the class under this name in every installed module that is called ``pyspark_*``.
    All methods raise :class:`~pyspark_pykafka.errors.OptionsError` for options that are wrong.
    """

    @classmethod
    def name(cls) -> str:
        """
        Return the name for ``.format(...)``.
        """
        return "pykafka"

    def schema(self) -> StructType:
        """
        Return the columns of Spark's JVM connector, with ``headers`` if ``includeHeaders`` is set.
        """
        include = self.options.get("includeheaders", "false").strip().lower() == "true"
        return source_schema(include_headers=include)

    def reader(self, schema: StructType) -> DataSourceReader:
        """
        Return the reader of a batch query.
        """
        from pyspark_pykafka.options import parse_batch_source
        from pyspark_pykafka.spark.batch_reader import FilteringBatchReader, KafkaBatchReader

        made = FilteringBatchReader if filter_pushdown_active() else KafkaBatchReader
        return made(parse_batch_source(self.options), arrow_schema(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """
        Return the reader of a streaming query.
        """
        from pyspark_pykafka.options import parse_stream_source
        from pyspark_pykafka.spark.stream_reader import KafkaStreamReader

        return KafkaStreamReader(parse_stream_source(self.options), arrow_schema(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """
        Return the writer of a batch.
        """
        from pyspark_pykafka.options import parse_sink
        from pyspark_pykafka.spark.writers import KafkaBatchWriter, check_append_mode

        check_append_mode(overwrite=overwrite)
        return KafkaBatchWriter(parse_sink(self.options, streaming=False), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: ARG002
        """
        Return the writer of a stream; ``complete`` mode appends every result, as in the JVM sink.
        """
        from pyspark_pykafka.options import parse_sink
        from pyspark_pykafka.spark.writers import KafkaStreamWriter

        return KafkaStreamWriter(parse_sink(self.options, streaming=True), schema)


def register(spark: SparkSession) -> None:
    """
    Make the format known to a session, where the package is shipped with ``--py-files``.

    An installed package needs no such call: Spark finds it by its name.
    """
    try:
        spark.dataSource.register(DefaultSource)
    except AnalysisException as refusal:
        # Spark 4.0 refuses a name that it has found by itself; later versions take the new class.
        if refusal.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
