"""
Creates a temporary view of each topic, so that SQL can query topics by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.options import parse_batch_source
from pyspark_pykafka.source.factory import metadata_client

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import SparkSession

_ALL_TOPICS = "^(?!__)"
_SELECTION = ("assign", "subscribe", "subscribepattern")
_PUSH_DOWN = "pushdownfilters"
_CASE_SENSITIVE = "spark.sql.caseSensitive"


def mount(
    spark: SparkSession,
    options: Mapping[str, str],
    *,
    pattern: str = _ALL_TOPICS,
    prefix: str = "",
    schema: str | None = None,
) -> tuple[str, ...]:
    """
    Create a temporary view of each topic whose name contains a match of ``pattern``.

    A view's name is ``prefix`` and the topic's name; with dots or dashes it needs backticks in SQL.
    It replaces a view of the same name. ``pattern`` is a regular expression as in
    ``subscribePattern``; without it, topics whose names begin with ``__`` are left out. ``options``
    are those of ``spark.read``, without a selection of topics. ``schema`` names the columns, as in
    ``spark.read.schema``. Returns the names of the views, in order.

    The views belong to the session ``spark``: Spark does not pass the options of permanent tables
    to data sources. Each query on a view reads the records and partitions that the topic has then.
    From Spark 4.1 on a start or end other than ``earliest`` and ``latest`` stays where the view's
    first query found it, and new topics have no view; call ``mount`` again for both::

        from pyspark_pykafka import mount

        options = {"kafka.bootstrap.servers": "localhost:9092"}
        mount(spark, options, prefix="kafka_", schema="key string, value string")
        spark.sql("SELECT key, count(*) FROM kafka_flights GROUP BY key")

    Raises :class:`~pyspark_pykafka.errors.OptionsError` if an option is wrong, or if names of
    topics differ only in case and ``spark.sql.caseSensitive`` is false, and
    :class:`~pyspark_pykafka.errors.BrokerUnavailableError` if no broker responds.
    """
    _check_no_selection(options)
    _check_no_push_down(options)
    topics = _topics(options, pattern)
    _check_distinct_names(spark, topics)
    names = []
    for topic in topics:
        reader = spark.read.format("pykafka").options(**options).option("subscribe", topic)
        frame = (reader if schema is None else reader.schema(schema)).load()
        names.append(f"{prefix}{topic}")
        frame.createOrReplaceTempView(f"`{names[-1]}`")
    return tuple(names)


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


def _check_distinct_names(spark: SparkSession, topics: Iterable[str]) -> None:
    """
    Raise :class:`OptionsError` if Spark would take the names of several topics for one.
    """
    if spark.conf.get(_CASE_SENSITIVE, "false") == "true":
        return
    # Spark compares the names of views in lower case (SessionCatalog.format).
    by_view: dict[str, list[str]] = {}
    for topic in topics:
        by_view.setdefault(topic.lower(), []).append(topic)
    mistakes = tuple(
        f"the topics {', '.join(clashing)} differ only in case, so they would have one view; "
        f"select one of them with pattern, or set {_CASE_SENSITIVE} to true"
        for clashing in by_view.values()
        if len(clashing) > 1
    )
    if mistakes:
        raise OptionsError(mistakes)


def _topics(options: Mapping[str, str], pattern: str) -> list[str]:
    source = parse_batch_source({**options, "subscribePattern": pattern})
    assignment = metadata_client(source).assignment(source.strategy)
    return sorted({tp.topic for tp in assignment.partitions})
