"""
Inlines the references between Avro schemas, so that one text is self-contained.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark_pykafka.formats.avro_schema import AvroSchemaError, declared_namespace
from pyspark_pykafka.formats.column_types import MAX_TYPE_DEPTH

if TYPE_CHECKING:
    from collections.abc import Iterable

_NAMED = frozenset({"record", "error", "enum", "fixed"})


def inline(text: str, imports: Iterable[str]) -> str:
    """
    Return a schema's text with each named type of its imports inlined at its first use.

    Raises :class:`AvroSchemaError` if a schema is not JSON, or is nested too deeply.
    """
    documents = [_parse_json(imported) for imported in imports]
    if not documents:
        return text
    inlining = _Inlining()
    for document in documents:
        inlining.collect(document, "", 1)
    return json.dumps(inlining.write(_parse_json(text), "", 1))


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as cause:
        msg = f"it is not JSON ({cause})"
        raise AvroSchemaError(msg) from cause


def _check_depth(depth: int) -> None:
    if depth > MAX_TYPE_DEPTH:
        msg = f"it is nested more than {MAX_TYPE_DEPTH} levels"
        raise AvroSchemaError(msg)


def _namespace_and_name(document: dict[str, Any], namespace: str) -> tuple[str, str]:
    """
    Return the namespace and the name of a definition.
    """
    inner, _, name = str(document.get("name", "")).rpartition(".")
    return inner or declared_namespace(document, namespace), name


def _full_name(namespace: str, name: str) -> str:
    return f"{namespace}.{name}" if namespace and "." not in name else name


@dataclass(slots=True)
class _Inlining:
    """
    Inlines the definitions of imports; ``written`` has the names that are in the text already.
    """

    definitions: dict[str, tuple[dict[str, Any], str]] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)

    def collect(self, document: Any, namespace: str, depth: int) -> None:
        _check_depth(depth)
        if isinstance(document, list):
            for branch in document:
                self.collect(branch, namespace, depth + 1)
        if not isinstance(document, dict):
            return
        if document.get("type") in tuple(_NAMED):
            namespace, name = _namespace_and_name(document, namespace)
            self.definitions.setdefault(_full_name(namespace, name), (document, namespace))
        for inner in _inner_types(document):
            self.collect(inner, namespace, depth + 1)

    def write(self, document: Any, namespace: str, depth: int) -> Any:
        _check_depth(depth)
        if isinstance(document, str):
            return self._reference(document, namespace, depth)
        if isinstance(document, list):
            return [self.write(branch, namespace, depth + 1) for branch in document]
        if not isinstance(document, dict):
            return document
        written = dict(document)
        if document.get("type") in tuple(_NAMED):
            namespace, name = _namespace_and_name(document, namespace)
            if _full_name(namespace, name) in self.written:
                return _full_name(namespace, name)
            self.written.add(_full_name(namespace, name))
            written |= {"name": name, "namespace": namespace}
            if isinstance(document.get("fields"), list):
                written["fields"] = [
                    {**f, "type": self.write(f.get("type"), namespace, depth + 1)}
                    if isinstance(f, dict)
                    else f
                    for f in document["fields"]
                ]
            return written
        for inner in ("type", "items", "values"):
            if inner in document:
                written[inner] = self.write(document[inner], namespace, depth + 1)
        return written

    def _reference(self, name: str, namespace: str, depth: int) -> Any:
        full = _full_name(namespace, name)
        for candidate in (full, name):
            if candidate in self.written:
                return candidate
            if candidate in self.definitions:
                definition, candidate_namespace = self.definitions[candidate]
                return self.write(definition, candidate_namespace, depth + 1)
        return name


def _inner_types(document: dict[str, Any]) -> list[Any]:
    fields = document.get("fields")
    listed = fields if isinstance(fields, list) else []
    inner = [document[part] for part in ("type", "items", "values") if part in document]
    return inner + [f.get("type") for f in listed if isinstance(f, dict)]
