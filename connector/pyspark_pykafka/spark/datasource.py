"""
The entry point for Spark: the data source ``pykafka``, with its readers and writers.

Spark creates these objects in several short-lived processes, and calls the factory methods more
than once. So the methods do I/O only for registered schemas, schema files and the check of a
write's destination, and they import the modules that only some of the processes need.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql.datasource import DataSource

from pyspark_pykafka.errors import PykafkaError
from pyspark_pykafka.spark.compat import (
    activate_session,
    arrow_schema,
    filter_pushdown_active,
    source_schema,
)
from pyspark_pykafka.spark.error_report import reports_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

    from pyspark_pykafka.options import FormatOptions, SourceOptions


@reports_errors
class DefaultSource(DataSource):
    """
    The data source for ``spark.read``, ``readStream``, ``write`` and ``writeStream``.

    Spark finds a class of this name in each installed package whose name starts with ``pyspark_``;
    users name only the format::

        flights = (
            spark.readStream.format("pykafka")
            .option("kafka.bootstrap.servers", "broker:9092")
            .option("subscribe", "flights")
            .load()
        )

    The columns are those of Spark's JVM connector: ``key`` and ``value`` (binary unless they are
    decoded), ``topic``, ``partition``, ``offset``, ``timestamp``, ``timestampType`` and, with
    ``includeHeaders``, ``headers``. Wrong options raise
    :class:`~pyspark_pykafka.errors.OptionsError` with all mistakes in one message, most of them at
    ``load()``.
    """

    #: The formats of keys and values, once :meth:`schema` has resolved them.
    _formats: FormatOptions | None = None

    @classmethod
    def name(cls) -> str:
        """
        Return the name of the format: ``pykafka``.
        """
        return "pykafka"

    def schema(self) -> StructType | str:
        """
        Return the source's columns, with ``headers`` if ``includeHeaders`` is true.

        With decoded keys or values, the result is DDL, which Spark parses.

        Spark calls this at ``load()``, so wrong options are reported there.
        """
        from pyspark_pykafka.formats.default_columns import default_ddl
        from pyspark_pykafka.options import parse_source
        from pyspark_pykafka.spark.catalog_tables import reject_table_properties

        reject_table_properties(self.options)
        options = parse_source(self.options)
        # Resolved once: Spark pickles this object for the reader, which must have the same schema.
        self._formats = _registered(options, derives_columns=True)
        ddl = default_ddl(self._formats, include_headers=options.include_headers)
        return source_schema(include_headers=options.include_headers) if ddl is None else ddl

    def reader(self, schema: StructType) -> DataSourceReader:
        """
        Return the reader of a batch query.
        """
        from pyspark_pykafka.options import parse_batch_source
        from pyspark_pykafka.spark.batch_reader import FilteringBatchReader, KafkaBatchReader
        from pyspark_pykafka.spark.catalog_tables import require_options
        from pyspark_pykafka.spark.compiled_modules import warn_of_missing_modules

        require_options(self.options)
        warn_of_missing_modules()
        options = self._with_formats(parse_batch_source(self.options))
        narrows = options.push_down_filters and filter_pushdown_active()
        reader = FilteringBatchReader if narrows else KafkaBatchReader
        return reader(options, arrow_schema(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """
        Return the reader of a streaming query; after an error, a reader that raises the error.
        """
        from pyspark_pykafka.options import parse_stream_source
        from pyspark_pykafka.spark.compiled_modules import warn_of_missing_modules
        from pyspark_pykafka.spark.stream_reader import InvalidStreamReader, KafkaStreamReader

        warn_of_missing_modules()
        try:
            options = self._with_formats(parse_stream_source(self.options))
            return KafkaStreamReader(options, arrow_schema(schema))
        except PykafkaError as error:
            return InvalidStreamReader(error)

    def _with_formats(self, options: SourceOptions) -> SourceOptions:
        formats = self._formats or _registered(options, derives_columns=False)
        return replace(options, formats=formats)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """
        Return the writer of a batch query.
        """
        from pyspark_pykafka.options import parse_sink
        from pyspark_pykafka.spark.catalog_tables import require_options
        from pyspark_pykafka.spark.compiled_modules import warn_of_missing_modules
        from pyspark_pykafka.spark.writers import (
            KafkaBatchWriter,
            check_append_mode,
            check_destination,
        )

        require_options(self.options)
        warn_of_missing_modules()
        check_append_mode(overwrite=overwrite)
        options = parse_sink(self.options, streaming=False)
        writer = KafkaBatchWriter(options, schema)
        check_destination(options)
        return writer

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: ARG002
        """
        Return the writer of a streaming query.

        Output mode ``complete`` appends each result, as in the JVM sink.
        """
        from pyspark_pykafka.options import parse_sink
        from pyspark_pykafka.spark.writers import KafkaStreamWriter, check_destination

        options = parse_sink(self.options, streaming=True)
        writer = KafkaStreamWriter(options, schema)
        check_destination(options)
        return writer


def _registered(options: SourceOptions, *, derives_columns: bool) -> FormatOptions:
    """
    Return the formats of keys and values, with schemas from the registry or a file filled in.
    """
    formats = options.formats
    if formats.registry is None and "protobuf" not in formats.by_column.values():
        return options.formats
    from pyspark_pykafka.formats.registered_schemas import with_registered_schemas

    return with_registered_schemas(
        options.formats, options.strategy, derives_columns=derives_columns
    )


def register(spark: SparkSession) -> None:
    """
    Register the format with a session, and make that session the active one of this thread.

    The call is needed in two cases; in all others Spark finds the installed package by its name:

    - The package is shipped with ``--py-files``, as a ZIP file or a wheel. The page "Deploying"
      has other ways to ship it.
    - A thread other than the one that created the session starts a write. Spark looks up Python
      data sources of writes in the thread's active session, so each such thread needs the call. ::

        from pyspark_pykafka import register

        def copy(topic: str) -> None:
            register(spark)
            flights.write.format("pykafka").options(**options, topic=topic).save()

        Thread(target=copy, args=["copies"]).start()
    """
    from pyspark_pykafka.spark.shipped_package import find_archive, ship_archive

    if (archive := find_archive()) is not None:
        ship_archive(spark.sparkContext, archive)
    activate_session(spark)
    try:
        spark.dataSource.register(DefaultSource)
    except AnalysisException as error:
        # Spark 4.0 rejects the name of a data source that it has discovered; later versions replace
        # the class.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
