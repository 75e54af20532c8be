"""
Parses the DDL that this package generates into Arrow types, in processes without Spark.

Only the generated forms are supported, with types in upper case. Spark parses users' DDL.
"""

from __future__ import annotations

import re

import pyarrow as pa

_TOKEN = re.compile(
    r"\s*(?:`((?:[^`]|``)*)`|(DECIMAL\(\d+, \d+\)|INTERVAL DAY TO SECOND|\w+)|(\S))"
)
_DECIMAL = re.compile(r"DECIMAL\((\d+), (\d+)\)")
_SIMPLE: dict[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
    "TIMESTAMP_NTZ": pa.timestamp("us"),
    "INTERVAL DAY TO SECOND": pa.duration("us"),
}


def arrow_type(ddl: str) -> pa.DataType:
    """
    Return the Arrow type of DDL that this package generated; raise ValueError for other DDL.
    """
    parser = _Parser(ddl)
    kind = parser.type()
    parser.end()
    return kind


class _Parser:
    """
    A recursive-descent parser of one type.
    """

    def __init__(self, ddl: str) -> None:
        self._ddl = ddl
        self._position = 0

    def type(self) -> pa.DataType:
        """
        Read a type.
        """
        name = self._next()
        if decimal := _DECIMAL.fullmatch(name):
            return pa.decimal128(int(decimal[1]), int(decimal[2]))
        if name in _SIMPLE:
            return _SIMPLE[name]
        if name not in {"STRUCT", "ARRAY", "MAP"}:
            raise self._error(f"'{name}' is not a type")
        self._expect("<")
        if name == "STRUCT":
            return pa.struct(self._fields())
        if name == "ARRAY":
            kind: pa.DataType = pa.list_(self.type())
        else:
            key = self.type()
            self._expect(",")
            kind = pa.map_(key, self.type())
        self._expect(">")
        return kind

    def end(self) -> None:
        """
        Raise ValueError if text follows the type.
        """
        if self._ddl[self._position :].strip():
            raise self._error("text after the type")

    def _fields(self) -> list[pa.Field]:
        fields = []
        while True:
            name = self._next()
            if self._ddl[self._position : self._position + 1] == ":":
                self._position += 1
            fields.append(pa.field(name, self.type()))
            separator = self._next()
            if separator == ">":
                return fields
            if separator != ",":
                raise self._error(f"expected ',' or '>' after a field, found '{separator}'")

    def _next(self) -> str:
        match = _TOKEN.match(self._ddl, self._position)
        if match is None:
            raise self._error("the text ends too early")
        self._position = match.end()
        quoted, word, other = match.groups()
        return quoted.replace("``", "`") if quoted is not None else (word or other)

    def _expect(self, token: str) -> None:
        actual = self._next()
        if actual != token:
            raise self._error(f"expected '{token}', found '{actual}'")

    def _error(self, reason: str) -> ValueError:
        return ValueError(f"{reason}, at position {self._position} of {self._ddl[:200]}")
