"""
CRC-32C from the compiled module of the package crc32c, without importing the package itself.

The package takes a fresh worker 16 ms to import, mostly for its command line and for looking up its
own version; the compiled module takes less than 1 ms.
"""

from __future__ import annotations

from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    Checksum = Callable[..., int]


def _load() -> Checksum:
    package = find_spec("crc32c")
    folders = None if package is None else package.submodule_search_locations
    compiled = PathFinder.find_spec("crc32c._crc32c", folders)
    if compiled is None or compiled.loader is None:
        from crc32c import crc32c as from_package

        return from_package
    module = module_from_spec(compiled)
    compiled.loader.exec_module(module)
    return cast("Checksum", module.crc32c)


#: ``crc32c(data, value=0)``: the checksum of ``data``, continued from the checksum ``value``.
crc32c = _load()
