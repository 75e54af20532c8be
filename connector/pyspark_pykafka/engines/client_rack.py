"""
Finds the rack of the process that reads, so that it fetches from the nearest replica (KIP-392).
"""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from functools import lru_cache, reduce
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.options import RackProvider, RackSource, RackVariable
from pyspark_pykafka.settings import KafkaSettings

if TYPE_CHECKING:
    from pyspark_pykafka.engines.contract import FetchSettings

logger = logging.getLogger("pyspark_pykafka")

_RACK = "client.rack"


def in_own_rack(settings: FetchSettings) -> FetchSettings:
    """
    Return the settings with the rack of this process, for both engines, in ``client.rack``.

    Without a rack the engines read from leaders. Raises :class:`OptionsError` if the user's
    function cannot be called, fails, or returns anything but a text or None.
    """
    if settings.rack_source is None:
        return settings
    rack = _own_rack(settings.rack_source)
    if not rack:
        return settings
    kafka = KafkaSettings.of({**dict(settings.kafka.pairs), _RACK: rack})
    return replace(settings, kafka=kafka, rack_source=None)


# Once in a process: a function may ask the cloud's metadata service. An error is not kept.
@lru_cache(maxsize=16)
def _own_rack(source: RackSource) -> str:
    return _of_variable(source.name) if isinstance(source, RackVariable) else _provided(source)


def _of_variable(name: str) -> str:
    rack = os.environ.get(name, "").strip()
    if not rack:
        logger.warning(
            "clientRackEnv is '%s', which is not set in this process; it reads from the leaders, "
            "whatever their racks. spark.executorEnv.%s sets it on all executors",
            name,
            name,
        )
    return rack


def _provided(source: RackProvider) -> str:
    try:
        module: Any = import_module(source.module)
        rack: Any = reduce(getattr, source.function.split("."), module)()
    # Anything may go wrong in the user's function.
    except Exception as cause:
        raise _provider_error(source, f"raised {type(cause).__name__}: {cause}") from cause
    if rack is not None and not isinstance(rack, str):
        raise _provider_error(source, f"returned {rack!r}")
    return (rack or "").strip()


def _provider_error(source: RackProvider, what: str) -> OptionsError:
    msg = (
        f"clientRackProvider is '{source.module}:{source.function}', which {what}; it must be: a "
        "function without parameters that executors can import, and that returns the name of a "
        "rack, or None"
    )
    return OptionsError((msg,))
