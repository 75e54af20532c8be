"""
CRC-32C, by the compiled part of the package crc32c alone.

Importing the package takes a fresh worker 16 ms, most of it for a command line and for looking up
its own version; the compiled part takes less than one.
"""

from __future__ import annotations

from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    Checksum = Callable[..., int]


def _found() -> Checksum:
    package = find_spec("crc32c")
    places = None if package is None else package.submodule_search_locations
    compiled = PathFinder.find_spec("crc32c._crc32c", places)
    if compiled is None or compiled.loader is None:
        from crc32c import crc32c as whole

        return whole
    module = module_from_spec(compiled)
    compiled.loader.exec_module(module)
    return cast("Checksum", module.crc32c)


#: ``crc32c(data, value=0)``: the checksum of bytes, going on from that of the bytes before.
crc32c = _found()
