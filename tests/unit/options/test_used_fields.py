"""
Each field of the parsed options is used.
"""

from __future__ import annotations

import ast
import dataclasses
from functools import cache
from pathlib import Path

import pytest

import pyspark_pykafka
from pyspark_pykafka.options import (
    EncodingOptions,
    FormatOptions,
    RegistryOptions,
    SinkOptions,
    SourceOptions,
)

PACKAGE = Path(pyspark_pykafka.__file__).parent


@cache
def names_in(module: Path) -> tuple[frozenset[str], frozenset[str]]:
    """
    Return the names that a module uses, imports or defines as classes, and the names of the
    attributes that it accesses.
    """
    nodes = list(ast.walk(ast.parse(module.read_text())))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    names |= {
        alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    names |= {node.name for node in nodes if isinstance(node, ast.ClassDef)}
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return frozenset(names), frozenset(attributes)


@pytest.mark.parametrize(
    "options", [SourceOptions, SinkOptions, FormatOptions, EncodingOptions, RegistryOptions]
)
def test_each_field_is_used(options: type[object]) -> None:
    """
    Each field of parsed options is read outside their parser, in a module that names their class.
    """
    assert dataclasses.is_dataclass(options)
    modules = [path for path in PACKAGE.rglob("*.py") if not path.stem.endswith("parse")]
    used: set[str] = set()
    for names, attributes in map(names_in, modules):
        if options.__name__ in names:
            used |= attributes

    assert {field.name for field in dataclasses.fields(options)} - used == set()
