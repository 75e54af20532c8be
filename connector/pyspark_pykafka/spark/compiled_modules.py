"""
The compiled modules of the package: the effect if one is missing, and why it cannot be imported.
"""

from __future__ import annotations

import logging
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark_pykafka

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

logger = logging.getLogger("pyspark_pykafka")

_RECORDS = "pyspark_pykafka.engines.wire.records"
_FORMATS = "pyspark_pykafka.formats"

#: The effect if a module is missing; the modules are those of pyproject.toml, in its order.
COMPILED = {
    f"{_RECORDS}._decoder": "the slower engine librdkafka reads",
    f"{_RECORDS}._encoder": "the slower engine librdkafka writes, and cannot write exactly-once",
    f"{_FORMATS}._json": "JSON cannot be decoded",
    f"{_FORMATS}._avro": "Avro cannot be decoded",
    f"{_FORMATS}._value_encoder": "JSON, Avro and Protobuf cannot be encoded",
    f"{_FORMATS}._protobuf": "Protobuf cannot be decoded",
}

#: What to do about missing modules.
REMEDY = (
    "install a wheel of pyspark-pykafka for this platform, or a C compiler and Python's headers, "
    "and then: pip install --force-reinstall --no-deps --no-cache-dir pyspark-pykafka"
)

#: The compiled modules of the wire engine.
WIRE = tuple(name for name in COMPILED if name.startswith(_RECORDS))


def missing_compiled_modules(modules: Iterable[str] = COMPILED) -> dict[str, str]:
    """
    Return the modules that cannot be imported, by full name, with the reason for each.
    """
    reasons = {module: _import_failure(module) for module in modules}
    return {module: reason for module, reason in reasons.items() if reason}


def describe_missing(missing: Mapping[str, str]) -> tuple[str, str]:
    """
    Return which modules are missing, why and with what effect, and what to do; each in one line.
    """
    modules_by_reason: dict[str, list[str]] = {}
    for module, reason in missing.items():
        modules_by_reason.setdefault(reason, []).append(short_name(module))
    reasons = "; ".join(
        f"{', '.join(modules)}: {reason}" for reason, modules in modules_by_reason.items()
    )
    effects = ", ".join(COMPILED[module] for module in missing)
    return f"{reasons}. So {effects}", REMEDY


@cache
def warn_of_missing_modules() -> None:
    """
    Log missing modules once in each process that plans queries.
    """
    # Importing all of them would delay each plan by some milliseconds.
    if all(find_spec(module) is not None for module in COMPILED):
        return
    text, remedy = describe_missing(missing_compiled_modules())
    logger.warning("%s; %s", text, remedy)


def short_name(module: str) -> str:
    """
    Return the name of a module without its package, such as ``_decoder``.
    """
    return module.rpartition(".")[2]


def _import_failure(module: str) -> str | None:
    try:
        import_module(module)
    except ImportError as error:
        files = _compiled_files(module)
        if files and find_spec(module) is None:
            return f"compiled for another Python: {', '.join(files)}"
        return str(error) if files else "it was not compiled when the package was installed"
    return None


def _compiled_files(module: str) -> list[str]:
    *folders, name = module.split(".")[1:]
    folder = Path(str(pyspark_pykafka.__file__)).parent.joinpath(*folders)
    files = folder.glob(f"{name}.*")
    return sorted(path.name for path in files if path.suffix in {".so", ".pyd"})
