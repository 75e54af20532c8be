"""
The picture in docs/architecture.md, held against the imports.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import pyspark_pykafka

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NAME = "pyspark_pykafka"
ROOT = Path(pyspark_pykafka.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"

#: The one sub-package whose modules are in several layers.
SPLIT = "progress"

SPARK_ADAPTERS = {
    *("compat", "reading", "batch", "stream", "sink", "datasource"),
    *("listener", "isolation", "auditor", "testing"),
}
KAFKA_EDGES = {"client", "rdkafka", "admin", "progress.kafka", "testing"}

MODULES = sorted(path for path in ROOT.rglob("*.py") if path.stem != "__init__")
WIRE = [path for path in MODULES if path.parent.name == "wire"]


def drawn() -> tuple[list[set[str]], list[set[str]]]:
    """
    Return the layers of the package and those of ``wire``, each from the bottom.

    A line of a picture is a layer: names, and behind a bar what they are for.
    """
    pictures = re.findall(r"^```\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    package, reading, writing = pictures[:3]
    return layers(package), layers(reading) + layers(writing)


def layers(picture: str) -> list[set[str]]:
    lines = [line.split("|")[0].split() for line in picture.splitlines()]
    return [{name.strip("/").replace("/", ".") for name in names} for names in reversed(lines)]


PACKAGE_LAYERS, WIRE_LAYERS = drawn()


def place(parts: Sequence[str]) -> str:
    """
    Return the name below the package under which a module stands in the picture.
    """
    return ".".join(parts[:2]) if parts[0] == SPLIT and len(parts) > 1 else parts[0]


def module_name(path: Path) -> str:
    """
    Return the first name below the package: a module's, or its sub-package's.
    """
    return place(path.relative_to(ROOT).with_suffix("").parts)


def imports(path: Path) -> Iterator[list[str]]:
    """
    Yield the full names that a file imports, wherever in it, as their parts.
    """
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.split(".")


def above(name: str, others: set[str], layers: list[set[str]]) -> set[str]:
    """
    Return those of the others that stand in a higher layer than a name does.
    """
    own = next(i for i, names in enumerate(layers) if name in names)
    return others & set().union(*layers[own + 1 :])


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_down(path: Path) -> None:
    """
    No module imports from a layer above its own.
    """
    met = {place(parts[1:]) for parts in imports(path) if parts[0] == NAME and len(parts) > 1}

    assert above(module_name(path), met, PACKAGE_LAYERS) == set()


@pytest.mark.parametrize("path", WIRE, ids=lambda p: p.stem)
def test_imports_point_down_inside_wire(path: Path) -> None:
    """
    Nor does one of those that the second picture and the third one show.
    """
    met = {parts[2] for parts in imports(path) if parts[:2] == [NAME, "wire"] and len(parts) > 2}

    assert above(path.stem, met, WIRE_LAYERS) == set()


def test_every_module_is_drawn() -> None:
    """
    Each module has one place in the pictures, and none is drawn that is not there.
    """
    package = [name for names in PACKAGE_LAYERS for name in names]
    wire = [name for names in WIRE_LAYERS for name in names]

    assert sorted(package) == sorted({module_name(path) for path in MODULES})
    assert sorted(wire) == sorted({p.stem for p in [*WIRE, *(ROOT / "wire").glob("*.pyx")]})


def test_an_import_that_points_up_is_seen() -> None:
    """
    The check is not blind to what it is for.
    """
    assert above("offsets", {"errors", "options"}, PACKAGE_LAYERS) == {"options"}


@pytest.mark.parametrize(
    ("library", "allowed"),
    [
        ("pyspark", SPARK_ADAPTERS),
        ("confluent_kafka", KAFKA_EDGES),
        ("kafka", {"wire"}),
        ("kazoo", {"progress.zookeeper"}),
    ],
)
def test_only_edges_import_the_outside(library: str, allowed: set[str]) -> None:
    """
    Spark is met in its adapters only, each of Kafka's clients at its edges only.
    """
    met = {
        module_name(path) for path in MODULES if any(parts[0] == library for parts in imports(path))
    }

    assert met <= allowed
