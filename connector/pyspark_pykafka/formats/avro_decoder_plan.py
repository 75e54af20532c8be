"""
Matches Avro schemas with a column's type, and plans the compiled decoder's work.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pyspark_pykafka.formats.avro_times import AS_IT_IS, TIMES, TO_MEMBERS
from pyspark_pykafka.formats.avro_types import avro_ddl
from pyspark_pykafka.formats.column_types import inner_fields, plan_size, spark_name

if TYPE_CHECKING:
    from pyspark_pykafka.formats.avro_schema import AvroType

#: The compiled decoder's plan of a type: (kind, column or -1, conversion, size, children, symbols).
WriterPlan = tuple[int, int, int, int, list[Any], tuple[str, ...] | bytes]

#: The compiled decoder's numbers for Avro's types, and for the types of resolved schemas.
KINDS = {
    name: number
    for number, name in enumerate(
        [
            *("null", "boolean", "int", "long", "float", "double", "bytes", "string"),
            *("record", "enum", "array", "map", "union", "fixed"),
            *("constant", "branch", "unresolved", "rest"),
        ]
    )
}
_SKIPPED = -1

# The column types that an Avro type may be read as, whatever its logical type.
_PROMOTIONS: dict[str, tuple[pa.DataType, ...]] = {
    "boolean": (pa.bool_(),),
    "int": (pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    "long": (pa.int64(), pa.float32(), pa.float64()),
    "float": (pa.float32(), pa.float64()),
    "double": (pa.float64(),),
    "bytes": (pa.binary(), pa.string()),
    "string": (pa.string(), pa.binary()),
    "enum": (pa.string(),),
    "fixed": (pa.binary(),),
}


def writer_plan(writer: AvroType, kind: pa.DataType, path: str) -> tuple[WriterPlan, list[str]]:
    """
    Return the compiled decoder's plan for reading a schema into a column's type, and the mistakes.
    """
    matching = _Matching()
    return matching.plan(writer, kind, 0, path), matching.mistakes


def skip_plan(writer: AvroType) -> WriterPlan:
    """
    Return the compiled decoder's plan for skipping the values of a schema.
    """
    inner = [skip_plan(kind) for _, kind in writer.fields]
    return KINDS[writer.kind], _SKIPPED, AS_IT_IS, writer.size, inner, writer.symbols


@dataclass(slots=True)
class _Matching:
    """
    Matches a schema with a column's type; ``number`` is the type's index in the plan of columns.
    """

    mistakes: list[str] = field(default_factory=list)

    def plan(self, writer: AvroType, kind: pa.DataType, number: int, path: str) -> WriterPlan:
        if writer.kind == "union":
            return self._union(writer, kind, number, path)
        if writer.kind == "record" and pa.types.is_struct(kind):
            return self._record(writer, kind, number, path)
        if (writer.kind == "array" and pa.types.is_list(kind)) or (
            writer.kind == "map" and pa.types.is_map(kind)
        ):
            inner = self._inner(writer, kind, number, path)
            return KINDS[writer.kind], number, AS_IT_IS, 0, inner, ()
        if writer.kind == "null":
            return KINDS["null"], number, AS_IT_IS, 0, [], ()
        conversion_code = conversion(writer, kind)
        if conversion_code is None:
            expected = avro_ddl(writer) or "left out, since the records have no values for it"
            self.mistakes.append(
                f"'{path}' is {spark_name(kind)} in the schema, but Avro's "
                f"{writer.logical or writer.kind} in the records; it must be: {expected}"
            )
            return skip_plan(writer)
        avro_kind = writer.kind
        if avro_kind == "bytes" and kind == pa.string():
            avro_kind = "string"
        elif avro_kind == "string" and kind == pa.binary():
            avro_kind = "bytes"
        return KINDS[avro_kind], number, conversion_code, writer.size, [], writer.symbols

    def _inner(
        self, writer: AvroType, kind: pa.DataType, number: int, path: str
    ) -> list[WriterPlan]:
        plans, number = [], number + 1
        for (_, inner), f in zip(writer.fields, inner_fields(kind), strict=True):
            plans.append(self.plan(inner, f.type, number, f"{path}.{f.name}"))
            number += plan_size(f.type)
        return plans

    def _record(self, writer: AvroType, kind: pa.DataType, number: int, path: str) -> WriterPlan:
        inner = self._fields(writer.fields, kind, number, path)
        return KINDS["record"], number, AS_IT_IS, 0, inner, ()

    def _fields(
        self,
        fields: tuple[tuple[str, AvroType], ...],
        kind: pa.DataType,
        number: int,
        path: str,
    ) -> list[WriterPlan]:
        columns, next_number = {}, number + 1
        for f in kind:
            columns[f.name] = (f.type, next_number)
            next_number += plan_size(f.type)
        names = [name for name, _ in fields]
        for name in columns:
            if name not in names:
                near = get_close_matches(name, names, n=1)
                hint = f"did you mean '{near[0]}'?" if near else "remove it from the schema"
                self.mistakes.append(f"'{path}.{name}' is not in the Avro schema; {hint}")
        return [
            self.plan(inner, *columns[name], f"{path}.{name}")
            if name in columns
            else skip_plan(inner)
            for name, inner in fields
        ]

    def _union(self, writer: AvroType, kind: pa.DataType, number: int, path: str) -> WriterPlan:
        to_members = len(writer.non_null_branches) > 1 and pa.types.is_struct(kind)
        if to_members:
            inner = self._fields(writer.fields, kind, number, path)
            return KINDS["union"], number, TO_MEMBERS, 0, inner, ()
        inner = [self.plan(branch, kind, number, path) for _, branch in writer.fields]
        return KINDS["union"], number, AS_IT_IS, 0, inner, ()


def conversion(writer: AvroType, kind: pa.DataType) -> int | None:
    """
    Return the conversion of values to a column type that is not nested, or None if there is none.
    """
    if writer.logical == "decimal" and pa.types.is_decimal(kind):
        is_same_type = (kind.precision, kind.scale) == (writer.precision, writer.scale)
        return AS_IT_IS if is_same_type else None
    if writer.logical == "date" and kind == pa.date32():
        return AS_IT_IS
    if writer.logical in TIMES and kind == TIMES[writer.logical][0]:
        return TIMES[writer.logical][1]
    return AS_IT_IS if kind in _PROMOTIONS.get(writer.kind, ()) else None
