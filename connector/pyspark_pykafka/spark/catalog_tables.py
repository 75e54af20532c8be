"""
Rejects tables of a catalog (``CREATE TABLE ... USING pykafka``): Spark passes their options to no
reader or writer, from 4.0 to 4.3. Temporary views keep theirs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_pykafka.errors import OptionsError

if TYPE_CHECKING:
    from collections.abc import Mapping

_WAY = (
    "a table of a catalog cannot be used, since Spark does not pass its options on; use CREATE "
    "TEMPORARY VIEW name USING pykafka OPTIONS (...) in SQL, or spark.read.format('pykafka')"
)

# Spark adds the table's properties to the options when it requests the schema of a new table.
_PROPERTY_PREFIX = "option."
_PROVIDER = "provider"


def check_no_new_table(options: Mapping[str, str]) -> None:
    """
    Raise :class:`OptionsError` if the options are the properties of a table to be created.
    """
    names = {name.lower() for name in options}
    if _PROVIDER in names or any(name.startswith(_PROPERTY_PREFIX) for name in names):
        raise OptionsError((_WAY,))


def check_any_options(options: Mapping[str, str]) -> None:
    """
    Raise :class:`OptionsError` if there are no options at all, as for an existing table.
    """
    if not options:
        missing = "there are no options; set kafka.bootstrap.servers and the topics"
        raise OptionsError((missing, _WAY))
