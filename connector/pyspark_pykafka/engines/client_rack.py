"""
Finds the rack of the process that reads, so that it fetches from the nearest replica (KIP-392).
"""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.options import RackProvider, RackSource, RackVariable
from pyspark_pykafka.settings import KafkaSettings

if TYPE_CHECKING:
    from pyspark_pykafka.engines.contract import FetchSettings

logger = logging.getLogger("pyspark_pykafka")

_RACK = "client.rack"
# Only an entry point that an installed package declares in this group can be called: users who set
# options, for example in SQL, may not be allowed to run Python code of their own.
_ENTRY_POINT_GROUP = "pyspark_pykafka.client_rack"


def with_client_rack(settings: FetchSettings) -> FetchSettings:
    """
    Return the settings with this process's rack as ``client.rack``, a property of both engines.

    Without a rack the engines read from leaders. For a rack provider, raises :class:`OptionsError`
    if none or several of the installed packages declare the entry point, or if its function cannot
    be called, fails, or returns anything but a string or None.
    """
    if settings.rack_source is None:
        return settings
    rack = _find_rack(settings.rack_source)
    if not rack:
        return settings
    kafka = KafkaSettings.of({**dict(settings.kafka.pairs), _RACK: rack})
    return replace(settings, kafka=kafka, rack_source=None)


# Cached, since a provider may query the cloud's metadata service. Errors are not cached.
@lru_cache(maxsize=16)
def _find_rack(source: RackSource) -> str:
    if isinstance(source, RackVariable):
        return _rack_from_variable(source.name)
    return _rack_from_provider(source)


def _rack_from_variable(name: str) -> str:
    rack = os.environ.get(name, "").strip()
    if not rack:
        logger.warning(
            "clientRackEnv is '%s', which is not set in this process; the process reads from the "
            "leaders, whatever their racks. spark.executorEnv.%s sets it on all executors",
            name,
            name,
        )
    return rack


def _rack_from_provider(source: RackProvider) -> str:
    entry = _entry_point(source.name)
    try:
        rack: Any = entry.load()()
    # Another package's function may raise anything.
    except Exception as cause:
        raise _provider_error(entry, f"raised {type(cause).__name__}: {cause}") from cause
    if rack is not None and not isinstance(rack, str):
        raise _provider_error(entry, f"returned {rack!r}")
    return (rack or "").strip()


def _entry_point(name: str) -> EntryPoint:
    entries = tuple(entry_points(group=_ENTRY_POINT_GROUP, name=name))
    if len(entries) == 1:
        return entries[0]
    if entries:
        packages = " and ".join(sorted(_origin(entry) for entry in entries))
        msg = (
            f"clientRackProvider is '{name}', which more than one package declares: {packages}; "
            "uninstall all but one of them"
        )
    else:
        names = ", ".join(sorted(entry_points(group=_ENTRY_POINT_GROUP).names)) or "there are none"
        msg = (
            f"clientRackProvider is '{name}', which is declared by no package that is installed "
            "where this process runs; it must be: an entry point of the group "
            f"{_ENTRY_POINT_GROUP} ({names})"
        )
    raise OptionsError((msg,))


def _origin(entry: EntryPoint) -> str:
    package = entry.dist.name if entry.dist else "a package without a name"
    return f"{package} ({entry.value})"


def _provider_error(entry: EntryPoint, failure: str) -> OptionsError:
    msg = (
        f"clientRackProvider is '{entry.name}', whose function {entry.value} {failure}; it must "
        "be: a function without parameters that returns the name of a rack, or None"
    )
    return OptionsError((msg,))
