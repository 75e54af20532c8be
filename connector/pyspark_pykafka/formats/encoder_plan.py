"""
Plans how a column's values are encoded: a tree of plans for the compiled encoder.

Columns are numbered in depth-first order: a type, then its nested types.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pyspark_pykafka.formats.column_types import (
    MAX_TYPE_DEPTH,
    inner_fields,
    kind_number,
    plan_size,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: (kind, output, column, null branch, branch, size, precision, scale, text, symbols, numbers of the
#: symbols, children)
CompiledPlan = tuple[
    int, int, int, int, int, int, int, int, bytes, tuple[bytes, ...], tuple[int, ...], list[Any]
]

# The compiled encoder's number for the output JSON, in which any value can be encoded. The numbers
# of Avro's outputs are in avro_encoder_plan, and those of Protobuf's in protobuf_encoder_plan.
_JSON = 0

NO_BRANCH = -1


@dataclass(frozen=True, slots=True)
class EncoderPlan:
    """
    The encoding of one value; ``path`` and ``expected`` are for messages.

    ``column`` is the number of the Arrow column, or -1 if ``text`` is written into every record.
    ``null_branch`` and ``branch`` are the union branches of null and of other values, or -1.
    For Protobuf, ``null_branch``, ``branch``, ``text`` and ``symbols`` have other meanings, which
    protobuf_encoder_plan describes.
    """

    path: str
    expected: str
    kind: int
    output: int
    column: int
    null_branch: int = NO_BRANCH
    branch: int = NO_BRANCH
    size: int = 0
    precision: int = 0
    scale: int = 0
    text: bytes = b""
    symbols: tuple[bytes, ...] = ()
    numbers: tuple[int, ...] = ()
    children: tuple[EncoderPlan, ...] = ()

    def compiled(self) -> CompiledPlan:
        """
        Return the plan in the form of the compiled encoder's argument.
        """
        return (
            *(self.kind, self.output, self.column, self.null_branch, self.branch),
            *(self.size, self.precision, self.scale, self.text, self.symbols, self.numbers),
            [child.compiled() for child in self.children],
        )

    def nodes(self) -> Iterator[EncoderPlan]:
        """
        Yield the plan and its nested plans, in the order of the compiled encoder's numbers.
        """
        yield self
        for child in self.children:
            yield from child.nodes()


def json_plan(
    path: str, kind: pa.DataType, column: int = 0, name: str | None = None
) -> EncoderPlan:
    """
    Return the plan that encodes a checked type as JSON.

    ``name`` is the name of a struct's field, or None for a type that is not the type of a field.
    """
    number = column + 1
    children: list[EncoderPlan] = []
    for field in inner_fields(kind):
        field_name = field.name if pa.types.is_struct(kind) else None
        children.append(json_plan(f"{path}.{field.name}", field.type, number, field_name))
        number += plan_size(field.type)
    text = b"" if name is None else f",{json.dumps(name, ensure_ascii=False)}:".encode()
    return EncoderPlan(
        path,
        "JSON",
        kind_number(kind),
        _JSON,
        column,
        scale=kind.scale if pa.types.is_decimal(kind) else 0,
        text=text,
        children=tuple(children),
    )


def encodable_mistakes(field: pa.Field, path: str, depth: int = 1) -> list[str]:
    """
    Return the reasons why a column cannot be encoded, one text for each mistake.
    """
    kind = field.type
    inner = inner_fields(kind)
    if depth > MAX_TYPE_DEPTH:
        return [f"'{path}' is nested too deeply; it must be: at most {MAX_TYPE_DEPTH} levels"]
    mistakes: list[str] = []
    if pa.types.is_map(kind):
        inner = inner[1:]
        if kind.key_type != pa.string():
            mistakes.append(f"the keys of '{path}' must be: STRING; cast them")
    elif pa.types.is_struct(kind):
        mistakes += repeated_names([f.name for f in inner], path)
    elif not pa.types.is_list(kind) and kind_number(kind) < 0:
        metadata = (field.metadata or {}).get(b"type", str(kind).encode()).decode()
        mistakes.append(
            f"'{path}' is {metadata}, which cannot be encoded; it must be: STRUCT, ARRAY, MAP, "
            "STRING, BINARY, BOOLEAN, a number, DATE, TIMESTAMP or TIMESTAMP_NTZ"
        )
    return mistakes + [
        m for f in inner for m in encodable_mistakes(f, f"{path}.{f.name}", depth + 1)
    ]


def repeated_names(names: Sequence[str], path: str) -> list[str]:
    """
    Return a mistake for each name that a struct's fields have twice.
    """
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    return [f"'{path}' has the field '{name}' twice; rename one of them" for name in twice]
