"""
Creates a view of each topic, in the session or in a database, so that SQL can query topics by name.

Spark does not pass the options of a table to a data source, but it does pass those of a query. So a
topic's view in a database is a query, with options, on a table that only has columns.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.options import parse_batch_source
from pyspark_pykafka.options.secrets import is_secret
from pyspark_pykafka.source.factory import metadata_client

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_ALL_TOPICS = "^(?!__)"
_SELECTION = ("assign", "subscribe", "subscribepattern")
_PUSH_DOWN = "pushdownfilters"
_CASE_SENSITIVE = "spark.sql.caseSensitive"
_NOT_IN_CATALOGS = re.compile(r"[^A-Za-z0-9_]")


def mount(
    spark: SparkSession,
    options: Mapping[str, str],
    *,
    database: str | None = None,
    pattern: str = _ALL_TOPICS,
    prefix: str = "",
    schema: str | None = None,
) -> tuple[str, ...]:
    """
    Create a view of each topic whose name contains a match of ``pattern``.

    A view's name is ``prefix`` and the topic's name; with dots or dashes it needs backticks in SQL.
    It replaces a view of the same name. ``pattern`` is a regular expression as in
    ``subscribePattern``; without it, topics whose names begin with ``__`` are left out. ``options``
    are those of ``spark.read``, without a selection of topics. ``schema`` names the columns, as in
    ``spark.read.schema``. Returns the names of the views, in order.

    Without ``database`` the views are temporary and belong to the session ``spark``. With it they
    are permanent views of that database, which all sessions see, and which outlive the application
    if the catalog does. Names there have letters, digits and underscores only, so other characters
    of a topic become underscores. The catalog stores the options as plain text, so a login is an
    error. The views read from a table without options, ``pykafka_columns_...``, in the database.

    Each query on a view reads the records and partitions that the topic has then. From Spark 4.1 on
    a start or end other than ``earliest`` and ``latest`` stays where the first query on a temporary
    view found it; a view in a database has no such memory. New topics have no view. Call ``mount``
    again to resolve such a start or end anew, and to create the views of new topics::

        from pyspark_pykafka import mount

        options = {"kafka.bootstrap.servers": "localhost:9092"}
        mount(spark, options, prefix="kafka_", schema="key string, value string")
        spark.sql("SELECT key, count(*) FROM kafka_flights GROUP BY key")

    Raises :class:`~pyspark_pykafka.errors.OptionsError` if an option is wrong, or if several
    topics would have the same view: names of temporary views that differ only in case are the same
    unless ``spark.sql.caseSensitive`` is true. Raises
    :class:`~pyspark_pykafka.errors.BrokerUnavailableError` if no broker responds.
    """
    _check_no_selection(options)
    _check_no_push_down(options)
    if database is not None:
        _check_no_login(options)
    topics = _topics(options, pattern)
    if database is None:
        is_case_sensitive = spark.conf.get(_CASE_SENSITIVE, "false") == "true"
        names = _temporary_names(topics, prefix, is_case_sensitive=is_case_sensitive)
    else:
        names = _catalog_names(topics, prefix)
    for name, topic in names.items():
        of_topic = {**options, "subscribe": topic}
        reader = spark.read.format("pykafka").options(**of_topic)
        frame = (reader if schema is None else reader.schema(schema)).load()
        if database is None:
            frame.createOrReplaceTempView(f"`{name}`")
        else:
            _create_view(spark, frame, f"`{database}`.`{name}`", database, of_topic)
    return tuple(names)


def _temporary_names(
    topics: Iterable[str], prefix: str, *, is_case_sensitive: bool
) -> dict[str, str]:
    """
    Return the topics by the names of their views; raise :class:`OptionsError` if Spark would take
    the names of several topics for one.
    """
    names = {f"{prefix}{topic}": topic for topic in topics}
    if not is_case_sensitive:
        reason = f"differ only in case, so they would have one view; set {_CASE_SENSITIVE} to true"
        _check_distinct(names.items(), reason)
    return names


def _catalog_names(topics: Iterable[str], prefix: str) -> dict[str, str]:
    """
    Return the topics by the names of their views in a database; raise as for temporary views.
    """
    pairs = [(_NOT_IN_CATALOGS.sub("_", f"{prefix}{topic}"), topic) for topic in topics]
    _check_distinct(pairs, "would have one view; mount each in a call of its own, with a prefix")
    return dict(pairs)


def _check_distinct(pairs: Iterable[tuple[str, str]], reason: str) -> None:
    # Spark compares the names of views in lower case (SessionCatalog.format).
    by_view: dict[str, list[str]] = {}
    for name, topic in pairs:
        by_view.setdefault(name.lower(), []).append(topic)
    mistakes = tuple(
        f"the topics {', '.join(clashing)} {reason}, or select one of them with pattern"
        for clashing in by_view.values()
        if len(clashing) > 1
    )
    if mistakes:
        raise OptionsError(mistakes)


def _create_view(
    spark: SparkSession, frame: DataFrame, view: str, database: str, options: Mapping[str, str]
) -> None:
    table = f"`{database}`.`{_columns_table(frame.schema)}`"
    if not spark.catalog.tableExists(table):
        _create_table(spark, table, frame.schema)
    pairs = ", ".join(f"`{name}` {_literal(value)}" for name, value in sorted(options.items()))
    spark.sql(f"CREATE OR REPLACE VIEW {view} AS SELECT * FROM {table} WITH ({pairs})")  # noqa: S608


def _create_table(spark: SparkSession, table: str, schema: StructType) -> None:
    # Spark Connect creates the table and then reads it, which fails: a table has no options.
    try:
        spark.catalog.createTable(table, source="pykafka", schema=schema)
    except PySparkException:
        if not spark.catalog.tableExists(table):
            raise


def _columns_table(schema: StructType) -> str:
    """
    Return the name of the table with these columns, which views with the same columns share.
    """
    return f"pykafka_columns_{sha256(schema.json().encode()).hexdigest()[:12]}"


def _literal(text: str) -> str:
    escaped = str(text).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _check_no_login(options: Mapping[str, str]) -> None:
    logins = sorted(filter(is_secret, options))
    if logins:
        msg = (
            f"{', '.join(logins)}: the catalog stores the options of a view in a database as plain "
            "text; mount without the argument database, or name files in the options of the login"
        )
        raise OptionsError((msg,))


def _check_no_selection(options: Mapping[str, str]) -> None:
    selection = sorted(name for name in options if name.lower() in _SELECTION)
    if selection:
        msg = f"{selection[0]} is set; mount() selects topics by its argument pattern"
        raise OptionsError((msg,))


def _check_no_push_down(options: Mapping[str, str]) -> None:
    if any(name.lower() == _PUSH_DOWN for name in options):
        msg = (
            "pushDownFilters is set; it is for a DataFrame that is used in one query, and a view "
            "is used in any number: remove the option"
        )
        raise OptionsError((msg,))


def _topics(options: Mapping[str, str], pattern: str) -> list[str]:
    source = parse_batch_source({**options, "subscribePattern": pattern})
    assignment = metadata_client(source).assignment(source.strategy)
    return sorted({tp.topic for tp in assignment.partitions})
