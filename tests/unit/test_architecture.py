"""
Imports follow the pictures in docs/architecture.md, and comments name invariants that exist.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

import pyspark_pykafka

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = "pyspark_pykafka"
ROOT = Path(pyspark_pykafka.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"

#: The folders that have a picture, in the page's order; the empty name is the package.
DRAWN = ("", "engines", "engines.wire")

SPARK_ADAPTERS = {
    *(
        "spark",
        "audit.observer",
        "failures.foreach_batch",
        "metrics.listener",
        "progress.listener",
        "testing",
        "verify",
    ),
}
LIBRDKAFKA_USERS = {
    *(
        "engines.librdkafka",
        "engines.error_mapping",
        "progress.group_member",
        "progress.group_offsets",
        "testing",
        "verify",
    ),
}
#: Coordinator requests of librdkafka's admin client; they can abort the process (librdkafka issues
#: 4605 and 5040).
COORDINATOR_REQUESTS = re.compile(
    r"\b(?:describe_consumer_groups|delete_consumer_groups|\w+_consumer_group_offsets)\("
)
LOGINS = {"engines.wire.network.sasl", "engines.wire.network.sasl_session"}

MODULES = sorted(path for path in ROOT.rglob("*.py") if path.stem != "__init__")


class Picture(NamedTuple):
    """
    The rows of one folder's picture, each a set of names, from the bottom up.
    """

    folder: str
    rows: list[set[str]]

    def above(self, name: str) -> set[str]:
        """
        Return the names in the rows above that of a name.
        """
        row = next(i for i, names in enumerate(self.rows) if name in names)
        return set().union(*self.rows[row + 1 :])


def read_picture(folder: str, text: str) -> Picture:
    """
    Parse a picture: each line is a row, with names before the bar and their purpose after it.
    """
    rows = [line.split("|")[0].split() for line in text.splitlines()]
    return Picture(folder, [{name.strip("/") for name in names} for names in reversed(rows)])


BLOCKS = re.findall(r"^```\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
PICTURES = [read_picture(*pair) for pair in zip(DRAWN, BLOCKS, strict=False)]


def full_name(path: Path) -> str:
    """
    Return a module's dotted name below the package.
    """
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


@cache
def imported(path: Path) -> tuple[str, ...]:
    """
    Return the full names that a file imports, anywhere in it.
    """
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names += (f"{node.module}.{alias.name}" for alias in node.names)
    return tuple(names)


def imported_modules(path: Path) -> set[str]:
    """
    Return the package's modules that a file imports, by their names below the package.
    """
    modules = set()
    for name in imported(path):
        parts = name.split(".")
        if parts[0] != NAME:
            continue
        inner = ".".join(parts[1:])
        while inner and inner not in NAMES:
            inner = inner.rpartition(".")[0]
        modules.add(inner)
    return modules - {""}


NAMES = {full_name(path) for path in MODULES}


def drawn_name(name: str, folder: str) -> str | None:
    """
    Return the name that a folder's picture has for a module; None if the module is not in the
    folder.
    """
    if folder and not name.startswith(f"{folder}."):
        return None
    return name[len(folder) :].strip(".").split(".")[0]


def upward_imports(picture: Picture, name: str, imports: set[str]) -> set[str]:
    """
    Return the imports of a module that point up in a picture.
    """
    drawn = drawn_name(name, picture.folder)
    if drawn is None:
        return set()
    return {
        imported
        for imported in imports
        if drawn_name(imported, picture.folder) in picture.above(drawn)
    }


def test_only_one_backend_sends_coordinator_requests() -> None:
    """
    Only the backend for settings that the wire engine lacks sends requests to coordinators through
    librdkafka's admin client.
    """
    calls = {
        full_name(path)
        for path in MODULES
        for line in path.read_text().splitlines()
        if COORDINATOR_REQUESTS.search(line.split("#")[0])
    }

    assert calls == {"engines.librdkafka.groups"}


@pytest.mark.parametrize("path", MODULES, ids=full_name)
def test_imports_point_down(path: Path) -> None:
    """
    No module imports from a row above its own, in any of the pictures.
    """
    imports = imported_modules(path)

    upward = [upward_imports(picture, full_name(path), imports) for picture in PICTURES]
    assert upward == [set()] * len(PICTURES)


def test_every_folder_and_module_is_drawn_once() -> None:
    """
    A picture contains each name directly below its folder once, and no other name.
    """
    for picture in PICTURES:
        drawn = sorted(name for row in picture.rows for name in row)
        below = {drawn_name(name, picture.folder) for name in NAMES}
        assert drawn == sorted(name for name in below if name is not None)


def test_an_upward_import_is_found() -> None:
    """
    The check finds a planted upward import, in the package and inside the wire engine.
    """
    package, _, wire = PICTURES

    assert upward_imports(package, "offsets", {"errors", "options.table"}) == {"options.table"}
    sender = {"engines.wire.producer.sender"}
    assert upward_imports(wire, "engines.wire.network.cluster", sender) == sender


def import_cycle(graph: Mapping[str, set[str]]) -> list[str]:
    """
    Return the names of a cycle in a graph of imports, or an empty list.
    """
    done: set[str] = set()

    def visit(name: str, trail: list[str]) -> list[str]:
        if name in trail:
            return trail[trail.index(name) :]
        if name in done:
            return []
        cycle = next(
            filter(None, (visit(successor, [*trail, name]) for successor in sorted(graph[name]))),
            [],
        )
        done.add(name)
        return cycle

    return next(filter(None, (visit(name, []) for name in sorted(graph))), [])


def test_no_import_cycle() -> None:
    """
    No module imports itself indirectly, not even for type checking.
    """
    assert import_cycle({full_name(path): imported_modules(path) for path in MODULES}) == []


def test_an_import_cycle_is_found() -> None:
    """
    The check finds a planted import cycle.
    """
    graph = {"a": {"b"}, "b": {"c"}, "c": {"d", "b"}, "d": set[str]()}

    assert sorted(import_cycle(graph)) == ["b", "c"]


@pytest.mark.parametrize(
    ("library", "allowed"),
    [
        ("pyspark", SPARK_ADAPTERS),
        ("confluent_kafka", LIBRDKAFKA_USERS),
        ("kafka", LOGINS),
        ("kazoo", {"progress.zookeeper_session", "progress.zookeeper_store"}),
    ],
)
def test_only_listed_modules_import_a_library(library: str, allowed: set[str]) -> None:
    """
    Only the adapters import Spark, and only the listed modules import a Kafka or ZooKeeper client.
    """
    users = {
        full_name(path)
        for path in MODULES
        if any(name.split(".")[0] == library for name in imported(path))
    }

    beyond = {
        name for name in users if not any(f"{name}.".startswith(f"{module}.") for module in allowed)
    }
    assert beyond == set()


INVARIANTS = [
    name
    for path in sorted((PAGE.parent / "architecture").glob("*.md"))
    for name in re.findall(r"^- \*\*Invariant ([IR]\d+), ", path.read_text(), re.MULTILINE)
]


def test_invariants_are_numbered_without_gaps() -> None:
    """
    The pages define I1, I2, … and R1, R2, …, each once and in order.
    """
    for letter in "IR":
        numbers = [name for name in INVARIANTS if name.startswith(letter)]
        assert numbers == [f"{letter}{number + 1}" for number in range(len(numbers))]
        assert len(numbers) >= 5


@pytest.mark.parametrize("path", MODULES, ids=full_name)
def test_invariants_in_comments_exist(path: Path) -> None:
    """
    A comment or docstring that names an invariant names one that the pages define.
    """
    pairs = re.findall(r"[Ii]nvariants? ([IR]\d+)(?: and ([IR]\d+))?", path.read_text())

    assert {name for pair in pairs for name in pair if name} <= set(INVARIANTS)


def test_every_invariant_is_named_in_the_code() -> None:
    """
    At least one comment or docstring refers to each invariant.
    """
    text = "".join(path.read_text() for path in MODULES)

    assert [name for name in INVARIANTS if not re.search(rf"\b{name}\b", text)] == []


DESIGN_PAGES = [
    PAGE,
    *sorted((PAGE.parent / "architecture").glob("*.md")),
    *sorted((PAGE.parent / "decisions").glob("*.md")),
]


@pytest.mark.parametrize("page", DESIGN_PAGES, ids=lambda path: path.stem)
def test_modules_named_in_pages_exist(page: Path) -> None:
    """
    The modules and folders that a page names exist below the package, `engines/`, `engines/wire/`
    or the repository.
    """
    repository = PAGE.parents[1]
    tops = (ROOT, ROOT / "engines", ROOT / "engines" / "wire", repository)
    paths = re.findall(r"`([a-z_]+(?:/[a-z_]+)+)/?`", page.read_text())

    assert [
        name
        for name in paths
        if not any((top / name).is_dir() or (top / f"{name}.py").exists() for top in tops)
    ] == []
