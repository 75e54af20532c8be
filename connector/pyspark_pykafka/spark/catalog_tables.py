"""
Rejects the options of tables (``CREATE TABLE ... USING pykafka OPTIONS ...``).

Spark 4.0 to 4.3 do not pass these options to readers or writers. Temporary views keep their
options, and a query on a table can have options of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_pykafka.errors import OptionsError

if TYPE_CHECKING:
    from collections.abc import Mapping

_REMEDY = (
    "Spark does not pass on the options of a table; use CREATE TEMPORARY VIEW name USING pykafka "
    "OPTIONS (...), give the options in the query, as in SELECT ... FROM name WITH (...), or use "
    "spark.read.format('pykafka')"
)

# Spark adds the table's properties to the options when it requests the schema of a new table.
_PROPERTY_PREFIX = "option."
_PROVIDER = "provider"


def reject_table_properties(options: Mapping[str, str]) -> None:
    """
    Raise :class:`OptionsError` if the options are the properties of a table that is being created.
    """
    names = {name.lower() for name in options}
    if _PROVIDER in names or any(name.startswith(_PROPERTY_PREFIX) for name in names):
        raise OptionsError((_REMEDY,))


def require_options(options: Mapping[str, str]) -> None:
    """
    Raise :class:`OptionsError` if there are no options at all, as for an existing table.
    """
    if not options:
        mistake = "there are no options; set kafka.bootstrap.servers and the topics"
        raise OptionsError((mistake, _REMEDY))
