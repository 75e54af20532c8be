"""
The picture in docs/architecture.md, held against the imports.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import pyspark_pykafka

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(pyspark_pykafka.__file__).parent

#: Layers from the bottom; a module imports only from its own layer and from those before it.
LAYERS = [
    {"errors", "offsets"},
    {
        *("columns", "rows", "planner", "retry", "pool", "garbage", "settings", "options"),
        *("borders", "admission"),
    },
    {"progress.record", "progress.store", "progress.keeper", "progress.completion"},
    {
        *("ends", "losses", "microbatches", "pruning", "checkpoint", "selection"),
        *("supervision", "poison", "audit", "ids", "entered", "replay", "transactional_ids"),
        "progress.recorder",
    },
    {"engine", "questions", "client"},
    {"rdkafka", "wire", "broker", "admin", "progress.kafka", "progress.zookeeper"},
    {"engines", "prefetch", "progress.stores", "ledgers", "delivery"},
    {"compat", "reading", "batch", "stream", "sink", "datasource", "listener"},
    {"isolation", "deadletter", "auditor", "entrance"},
    {"testing", "cli"},
]
SPARK_ADAPTERS = {
    *("compat", "reading", "batch", "stream", "sink", "datasource"),
    *("listener", "isolation", "auditor", "testing"),
}
KAFKA_EDGES = {"client", "rdkafka", "admin", "progress.kafka", "testing"}

MODULES = sorted(ROOT.rglob("*.py"))


#: The one sub-package whose modules are in several layers.
SPLIT = "progress"


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


def imports(path: Path) -> set[str]:
    """
    Return the full names that a file imports, wherever in it.
    """
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module)
    return found


def layer(name: str) -> int:
    """
    Return the number of a module's layer.
    """
    return next(i for i, names in enumerate(LAYERS) if name in names)


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_down(path: Path) -> None:
    """
    No module imports from a layer above its own, and each has a place in the picture.
    """
    name = module_name(path)
    if name in ("__init__", f"{SPLIT}.__init__"):
        return
    for full in imports(path):
        parts = full.split(".")
        if parts[0] == "pyspark_pykafka" and len(parts) > 1:
            assert layer(place(parts[1:])) <= layer(name), f"{name} imports {full}"


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
        module_name(path)
        for path in MODULES
        if any(full.split(".")[0] == library for full in imports(path))
    }

    assert met <= allowed
