"""
Infers the type of JSON texts from a sample. Pure: no I/O.

All fields of the schema are nullable; the report shows how often each of them had a value.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark_pykafka.formats.column_types import MAX_TYPE_DEPTH

if TYPE_CHECKING:
    from collections.abc import Iterator

#: An object with more names than this becomes a MAP, since its names are probably data.
MAX_FIELDS = 500

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LONG = 1 << 63
# Decimals with at most this many significant digits survive the conversion to double.
_DOUBLE_DIGITS = 15
_DECIMAL_DIGITS = 38
_MAX_NUMBER_LENGTH = 1000


class InvalidJsonError(ValueError):
    """
    The text is not JSON; the decoder would reject it too.
    """


@dataclass(frozen=True, slots=True)
class InferredField:
    """
    A field's type, and the number of objects in which it has a value: ``seen`` out of ``total``.

    ``path`` has the names of the fields from the top level, ``[]`` for an element of an array and
    ``{}`` for a value of a MAP. ``note`` is a remark on the values that the type cannot express, or
    empty.
    """

    path: str
    type: str
    seen: int
    total: int
    kinds: dict[str, int]
    note: str


@dataclass(slots=True)
class JsonSample:
    """
    Statistics of the values at one place in the texts: the top level, a field, or an element.
    """

    kinds: Counter[str] = field(default_factory=Counter)
    fields: dict[str, JsonSample] = field(default_factory=dict)
    element: JsonSample | None = None
    #: The maximum numbers of digits before and after the decimal point, and of significant digits.
    whole_digits: int = 0
    scale: int = 0
    digits: int = 0
    has_fraction: bool = False
    exceeds_long: bool = False
    is_map: bool = False

    @property
    def seen(self) -> int:
        """
        The number of values that are not null.
        """
        return sum(self.kinds.values()) - self.kinds["null"]

    @property
    def _kinds(self) -> set[str]:
        return {kind for kind in self.kinds if kind != "null"}

    def add(self, text: bytes) -> None:
        """
        Add one text. Raises :class:`InvalidJsonError` if it is not valid JSON.
        """
        try:
            value = json.loads(
                text.decode(), parse_float=_fraction, parse_int=_whole, parse_constant=_reject
            )
        except (ValueError, RecursionError) as cause:
            raise InvalidJsonError(str(cause)) from cause
        self.observe(value, 1)

    def observe(self, value: Any, depth: int) -> None:
        """
        Add one parsed value. Its numbers with a point or exponent are Decimal, or infinite if the
        exponent exceeds what Decimal can hold.
        """
        kind = _kind(value)
        if kind in {"object", "array"} and depth > MAX_TYPE_DEPTH // 2:
            # Half of the limit, so that the inferred type stays well below it.
            kind = "nested too deeply"
        self.kinds[kind] += 1
        if kind == "object":
            self._observe_object(value, depth)
        elif kind == "array":
            self.element = self.element or JsonSample()
            for item in value:
                self.element.observe(item, depth + 1)
        elif kind == "number":
            self._observe_number(value)

    def _observe_object(self, value: dict[str, Any], depth: int) -> None:
        for name, inner in value.items():
            if self.is_map:
                self._map_values().observe(inner, depth + 1)
                continue
            self.fields.setdefault(name, JsonSample()).observe(inner, depth + 1)
            if len(self.fields) > MAX_FIELDS:
                self._become_map()

    def _become_map(self) -> None:
        fields, self.fields, self.is_map = self.fields, {}, True
        for sample in fields.values():
            self._map_values().merge(sample)

    def _map_values(self) -> JsonSample:
        return self.fields.setdefault("", JsonSample())

    def merge(self, other: JsonSample) -> None:
        """
        Add another sample's statistics to this one.
        """
        self.kinds.update(other.kinds)
        self.whole_digits = max(self.whole_digits, other.whole_digits)
        self.scale = max(self.scale, other.scale)
        self.digits = max(self.digits, other.digits)
        self.has_fraction |= other.has_fraction
        self.exceeds_long |= other.exceeds_long
        if other.element is not None:
            self.element = self.element or JsonSample()
            self.element.merge(other.element)
        if other.is_map and not self.is_map:
            self._become_map()
        for name, sample in other.fields.items():
            target = "" if self.is_map else name
            self.fields.setdefault(target, JsonSample()).merge(sample)
        if not self.is_map and len(self.fields) > MAX_FIELDS:
            self._become_map()

    def _observe_number(self, number: float | Decimal) -> None:
        # The decoder accepts no number with a point or an exponent as a BIGINT, not even 1e3.
        self.has_fraction |= not isinstance(number, int)
        self.exceeds_long |= isinstance(number, int) and not -_LONG <= number < _LONG
        if isinstance(number, float):
            self.whole_digits = _DECIMAL_DIGITS + 1
            return
        _, digits, exponent = Decimal(number).as_tuple()
        assert isinstance(exponent, int)
        self.scale = max(self.scale, -exponent)
        self.whole_digits = max(self.whole_digits, len(digits) + exponent)
        self.digits = max(self.digits, len(digits))

    @property
    def ddl(self) -> str:
        """
        The type as DDL.
        """
        if len(self._kinds) != 1:
            return "STRING"
        (kind,) = self._kinds
        if kind == "object":
            return self._object_ddl()
        if kind == "array":
            return f"ARRAY<{self.element.ddl if self.element else 'STRING'}>"
        if kind == "number":
            return self._number_ddl()
        return "BOOLEAN" if kind == "boolean" else "STRING"

    @property
    def schema(self) -> str:
        """
        The type in the form of ``valueSchema``: a list of fields if it is a STRUCT.
        """
        ddl = self.ddl
        return _fields_ddl(self._printable_fields(), " ") if ddl.startswith("STRUCT<") else ddl

    def _object_ddl(self) -> str:
        if self.is_map:
            return f"MAP<STRING, {self._map_values().ddl}>"
        fields = self._printable_fields()
        return f"STRUCT<{_fields_ddl(fields, ': ')}>" if fields else "STRING"

    def _printable_fields(self) -> dict[str, JsonSample]:
        return {name: sample for name, sample in self.fields.items() if name.isprintable()}

    def _number_ddl(self) -> str:
        if not self.has_fraction and not self.exceeds_long:
            return "BIGINT"
        precision = self.whole_digits + self.scale
        needs_decimal = self.digits > _DOUBLE_DIGITS or self.exceeds_long
        if needs_decimal and 0 < precision <= _DECIMAL_DIGITS and self.whole_digits >= 0:
            return f"DECIMAL({precision},{self.scale})"
        return "DOUBLE"

    def report(self, path: str = "", total: int = 0) -> Iterator[InferredField]:
        """
        Yield the field at this place and all fields below it; the top level itself is not a field.

        ``total`` is the number of objects, or of elements, that could have the field.
        """
        if path:
            kinds = dict(sorted(self.kinds.items()))
            yield InferredField(path, self.ddl, self.seen, total, kinds, self._note())
        if self._kinds == {"array"} and self.element is not None and self.element.kinds:
            yield from self.element.report(f"{path}[]", sum(self.element.kinds.values()))
        if self._kinds != {"object"}:
            return
        for name, sample in self.fields.items():
            inner = f"{path}{{}}" if self.is_map else f"{path}.{name}".lstrip(".")
            possible = sum(sample.kinds.values()) if self.is_map else self.kinds["object"]
            yield from sample.report(inner, possible)

    def _note(self) -> str:
        kinds = self._kinds
        if not kinds:
            return "only nulls"
        if len(kinds) > 1:
            return f"values of several kinds: {', '.join(sorted(kinds))}"
        if "nested too deeply" in kinds:
            return "nested too deeply; the column has the JSON text"
        if kinds == {"object"}:
            return self._object_note()
        if kinds == {"array"} and not (self.element and self.element.kinds):
            return "only empty arrays"
        return ""

    def _object_note(self) -> str:
        if self.is_map:
            return f"more than {MAX_FIELDS} names"
        if not self._printable_fields():
            return "only empty objects"
        if len({name.lower() for name in self.fields}) < len(self.fields):
            return "names that differ only in case, which Spark by default treats as one name"
        if len(self._printable_fields()) < len(self.fields):
            return "names with control characters are left out"
        return ""


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    if isinstance(value, dict):
        return "object"
    return "array" if isinstance(value, list) else "number"


def _whole(text: str) -> int:
    _check_length(text)
    return int(text)


def _fraction(text: str) -> Decimal | float:
    _check_length(text)
    try:
        return Decimal(text)
    except InvalidOperation:
        # The exponent has too many digits. A decoder of DOUBLE reads infinity or 0.
        return math.inf


def _check_length(text: str) -> None:
    if len(text) > _MAX_NUMBER_LENGTH:
        msg = f"a number of more than {_MAX_NUMBER_LENGTH} characters"
        raise ValueError(msg)


def _reject(text: str) -> NoReturn:
    msg = f"{text} is not JSON"
    raise ValueError(msg)


def _fields_ddl(fields: dict[str, JsonSample], separator: str) -> str:
    return ", ".join(f"{_quote(name)}{separator}{inner.ddl}" for name, inner in fields.items())


def _quote(name: str) -> str:
    if _IDENTIFIER.fullmatch(name):
        return name
    escaped = name.replace("`", "``")
    return f"`{escaped}`"
