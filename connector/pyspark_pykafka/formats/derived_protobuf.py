"""
Derives Protobuf messages from the types of columns, as descriptors and without ``protoc``.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass

import pyarrow as pa

from pyspark_pykafka.formats.column_types import MAX_TYPE_DEPTH, inner_fields
from pyspark_pykafka.formats.encoder_plan import repeated_names
from pyspark_pykafka.formats.protobuf_definitions import BOOL, BYTES, DOUBLE, FLOAT, MESSAGE, STRING
from pyspark_pykafka.formats.protobuf_descriptors import descriptor_set, varint
from pyspark_pykafka.formats.protobuf_schemas import ResolvedSchema
from pyspark_pykafka.formats.protobuf_types import TIMES

#: The name of the message of a whole value, unless the user sets another name.
MESSAGE_NAME = "TopLevelRecord"

# The name of a map's entry is made from its field's name without underscores, and must begin with a
# letter.
_NAME = re.compile(r"(?!_*[0-9])[A-Za-z0-9_]+")
_INT32, _INT64 = 5, 3
_KINDS: dict[pa.DataType, int] = {
    pa.bool_(): BOOL,
    **dict.fromkeys((pa.int8(), pa.int16(), pa.int32()), _INT32),
    pa.int64(): _INT64,
    pa.float32(): FLOAT,
    pa.float64(): DOUBLE,
    pa.string(): STRING,
    pa.binary(): BYTES,
}
_TIMES = {kind: name for name, kind in TIMES.items()}
_IMPORTS = {name: f"{name.lower().replace('.', '/')}.proto" for name in TIMES}
_KEYS = {pa.string(), pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64()}
_OPTIONAL, _REPEATED = 1, 3


def protobuf_schema(kind: pa.DataType, record_name: str | None = None) -> ResolvedSchema:
    """
    Return the proto3 message of a type without mistakes; ``record_name`` may have a package.

    Fields are numbered in their order. All except lists and maps are optional, so that NULL and
    zero differ.
    """
    full_name = record_name or MESSAGE_NAME
    package, _, name = full_name.rpartition(".")
    writer = _Writer(set())
    message = writer.message(kind, name, f".{full_name}")
    file = (
        _sized(1, f"{full_name}.proto".encode())
        + (_sized(2, package.encode()) if package else b"")
        + b"".join(_sized(3, path.encode()) for path in sorted(writer.imports))
        + _sized(4, message)
        + _sized(12, b"proto3")
    )
    return ResolvedSchema(base64.b64encode(descriptor_set([file])).decode(), full_name)


def record_name_mistakes(name: str | None, column: str) -> list[str]:
    """
    Return a mistake if no message can have the name that is set for a column's record.
    """
    if name is None or all(map(_NAME.fullmatch, name.split("."))):
        return []
    return [
        (
            f"{column}RecordName is '{name}', which is not the name of a Protobuf message; it must "
            "have a form such as: com.shop.Order"
        )
    ]


def protobuf_type_mistakes(field: pa.Field, path: str, depth: int = 1) -> list[str]:
    """
    Return the reasons why no message can have a column's type, one text for each mistake.
    """
    kind = field.type
    if depth > MAX_TYPE_DEPTH:
        return [f"'{path}' is nested too deeply; it must be: at most {MAX_TYPE_DEPTH} levels"]
    mistakes: list[str] = []
    inner = inner_fields(kind)
    if pa.types.is_struct(kind):
        mistakes = _name_mistakes([f.name for f in kind], path) + _entry_mistakes(kind, path)
    elif depth == 1:
        mistakes = [f"'{path}' must be: a STRUCT, to be written as a Protobuf message"]
    elif pa.types.is_map(kind):
        if kind.key_type not in _KEYS:
            mistakes = [
                f"the keys of '{path}' must be: STRING, BOOLEAN or a whole number; cast them"
            ]
        inner = inner[1:]
    elif not inner and kind not in _KINDS and kind not in _TIMES:
        metadata = (field.metadata or {}).get(b"type", str(kind).encode()).decode()
        mistakes = [
            (
                f"'{path}' is {metadata}, which Protobuf cannot represent; cast it, for example to "
                "STRING, or set the schema"
            )
        ]
    for part in inner:
        if not pa.types.is_struct(kind) and (
            pa.types.is_list(part.type) or pa.types.is_map(part.type)
        ):
            mistakes.append(
                f"'{path}.{part.name}' is a list or map in a list or map, which Protobuf cannot "
                "represent; put a STRUCT between them"
            )
    return mistakes + [
        m for f in inner for m in protobuf_type_mistakes(f, f"{path}.{f.name}", depth + 1)
    ]


def _name_mistakes(names: list[str], path: str) -> list[str]:
    if not names:
        return [f"'{path}' is a STRUCT without fields; add at least one"]
    mistakes = [
        f"'{path}.{name}' is not a valid name in Protobuf (letters, digits and underscores, and no "
        "digit before a letter); rename it"
        for name in names
        if not _NAME.fullmatch(name)
    ]
    originals: dict[str, str] = {}
    for name in names:
        earlier = originals.setdefault(_camel(name), name)
        if earlier != name:
            mistakes.append(
                f"'{path}.{earlier}' and '{path}.{name}' become the same name in Protobuf; rename "
                "one of them"
            )
    return [*repeated_names(names, path), *mistakes]


def _entry_mistakes(kind: pa.DataType, path: str) -> list[str]:
    entries = {_entry_name(f.name): f.name for f in kind if pa.types.is_map(f.type)}
    return [
        f"'{path}.{f.name}' is Protobuf's name for an entry of the map '{path}.{entries[f.name]}'; "
        "rename one of them"
        for f in kind
        if f.name in entries
    ]


@dataclass(frozen=True, slots=True)
class _Writer:
    """
    Writes descriptors of messages, and collects the files that they import.
    """

    imports: set[str]

    def message(self, kind: pa.DataType, name: str, full_name: str) -> bytes:
        """
        Return the DescriptorProto of a struct; ``full_name`` begins with a dot.
        """
        names = _Names(kind)
        fields, nested, oneofs = b"", b"", b""
        oneof_count = 0
        for number, field in enumerate(kind, 1):
            is_map = pa.types.is_map(field.type)
            is_list = is_map or pa.types.is_list(field.type)
            item = (inner_fields(field.type)[-1] if is_list else field).type
            typed, nested_message = self._type(item, names, field.name, full_name)
            nested += nested_message
            if is_map:
                entry = _entry_name(field.name)
                nested += _sized(3, self._entry(field.type.key_type, typed, entry))
                typed = _typed(MESSAGE, f"{full_name}.{entry}")
            descriptor = _named(field.name, number, _REPEATED if is_list else _OPTIONAL) + typed
            if not is_list:
                # In descriptors, an optional field of proto3 is the only member of a oneof.
                descriptor += _number(9, oneof_count) + _number(17, 1)
                oneofs += _sized(8, _sized(1, names.unused(f"_{field.name}").encode()))
                oneof_count += 1
            fields += _sized(2, descriptor)
        return _sized(1, name.encode()) + fields + nested + oneofs

    def _entry(self, key: pa.DataType, value: bytes, name: str) -> bytes:
        return (
            _sized(1, name.encode())
            + _sized(2, _named("key", 1, _OPTIONAL) + _typed(_KINDS[key]))
            + _sized(2, _named("value", 2, _OPTIONAL) + value)
            + _sized(7, _number(7, 1))
        )

    def _type(
        self, kind: pa.DataType, names: _Names, field: str, scope: str
    ) -> tuple[bytes, bytes]:
        """
        Return the type of a field, and the nested message that it needs, if any.
        """
        if kind in _KINDS:
            return _typed(_KINDS[kind]), b""
        if kind in _TIMES:
            self.imports.add(_IMPORTS[_TIMES[kind]])
            return _typed(MESSAGE, f".{_TIMES[kind]}"), b""
        name = names.unused(_camel(field))
        full_name = f"{scope}.{name}"
        return _typed(MESSAGE, full_name), _sized(3, self.message(kind, name, full_name))


class _Names:
    """
    The names that are taken in a message: of its fields, nested messages and oneofs.
    """

    def __init__(self, kind: pa.DataType) -> None:
        self._taken = {field.name for field in kind}
        self._taken |= {_entry_name(f.name) for f in kind if pa.types.is_map(f.type)}

    def unused(self, name: str) -> str:
        """
        Return the name, with an X before it if it is taken or does not begin with a letter.
        """
        while name in self._taken or not _NAME.fullmatch(name):
            name = f"X{name}"
        self._taken.add(name)
        return name


def _entry_name(field: str) -> str:
    """
    Return the name that ``protoc`` requires for the entry message of a map.
    """
    return f"{_camel(field)}Entry"


def _camel(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def _named(name: str, number: int, label: int) -> bytes:
    return _sized(1, name.encode()) + _number(3, number) + _number(4, label)


def _typed(kind: int, name: str = "") -> bytes:
    return _number(5, kind) + (_sized(6, name.encode()) if name else b"")


def _number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def _sized(field: int, data: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(data)) + data
