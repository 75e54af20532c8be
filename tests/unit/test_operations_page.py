"""
The conditions, errors, options and commands that the page on operations names exist.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import pyspark_pykafka
from pyspark_pykafka import cli, errors
from pyspark_pykafka.options import OPTIONS

PAGE = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
PACKAGE = Path(pyspark_pykafka.__file__).parent
SOURCES = "\n".join(path.read_text() for path in PACKAGE.rglob("*.py"))
CODE = sorted(set(re.findall(r"`([^`]+)`", PAGE)))
#: Names of Spark and Kafka, which no part of the connector defines.
OTHERS = {
    "DATA_SOURCE_NOT_FOUND",
    "PYSPARK_PYTHON",
    "advertised.listeners",
    "pykafka",
    "register(spark)",
    "spark.executor.memoryOverhead",
    "spark.sql.shuffle.partitions",
    "unclean.leader.election.enable=false",
}


def exists(text: str) -> bool:
    """
    Return whether the connector has a name that a page shows as code.
    """
    if text in OTHERS:
        return True
    if text.startswith("pykafka "):
        return text.split()[1] in {command.name for command in cli.COMMANDS}
    name = text.partition("=")[0]
    if name.isupper():
        return f'"{name}' in SOURCES
    if text.startswith("--"):
        return f'"{text}"' in SOURCES
    names = {option.name for option in OPTIONS} | set(pyspark_pykafka.__all__)
    return name in names or hasattr(errors, name) or name in {"describe", "abort"}


@pytest.mark.parametrize("text", CODE)
def test_names_on_the_page_exist(text: str) -> None:
    """
    Each condition, error, option and command on the page is one of the connector's.
    """
    assert exists(text)


@pytest.mark.parametrize("condition", sorted(set(re.findall(r'"(EXACTLY_ONCE_[A-Z_]+)"', SOURCES))))
def test_each_condition_of_exactly_once_writes_has_a_row(condition: str) -> None:
    """
    The page has a row for each condition of exactly-once writes, with its meaning and the remedy.
    """
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| `{condition}` |")]

    assert all(cell.strip() for cell in row.strip("|").split("|"))


def test_unknown_names_are_found() -> None:
    """
    The check fails for names that the connector does not have.
    """
    assert not any(map(exists, ("NO_SUCH_CONDITION", "pykafka repair", "noSuchOption")))
