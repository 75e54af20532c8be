"""
Makes columns of Debezium's change events from their decoded envelopes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_pykafka.formats.bad_records import BadValue
from pyspark_pykafka.formats.columns import ArrayColumn
from pyspark_pykafka.formats.debezium import AFTER, BEFORE, MILLIS, OPERATION

if TYPE_CHECKING:
    from pyspark_pykafka.formats.columns import ValueColumn
    from pyspark_pykafka.formats.debezium import Envelope

# Create, update, delete, read by a snapshot, truncate, and message.
_OPERATIONS = pa.array(["c", "u", "d", "r", "t", "m"])
# The latest time, in milliseconds, whose microseconds fit in 64 bits.
_MAX_MILLIS = (2**63 - 1) // 1000


class DebeziumColumn(ArrayColumn):
    """
    A column of change events, made from the column ``decoded``, which holds their envelopes.

    ``name`` is the column's name, for messages. A value without a known operation is bad.
    """

    def __init__(self, name: str, envelope: Envelope, decoded: ValueColumn) -> None:
        super().__init__(envelope.type)
        self._name = name
        self._envelope = envelope
        self._decoded = decoded

    @property
    def nbytes(self) -> int:
        """
        The bytes of the rows, and of the envelopes.
        """
        return self._decoded.nbytes + super().nbytes

    def decode(
        self, encoded: pa.Array, start: int, end: int, headers: pa.Array | None = None
    ) -> int:
        """
        Decode the rows ``[start, end)``; return the next row.
        """
        stop = self._decoded.decode(encoded, start, end, headers)
        bad = self._decoded.take_bad()
        events = self._unwrap(self._decoded.take())
        bad += self._without_operation(events, start, {value.row for value in bad})
        fields = dict(zip((f.name for f in events.type), events.flatten(), strict=True))
        if MILLIS in fields and self._envelope.time_column in {f.name for f in self._envelope.type}:
            bad += self._out_of_range(fields[MILLIS], start)
        self._bad += sorted(bad)
        self._parts.append(self._columns(events, fields))
        return stop

    def _unwrap(self, values: pa.StructArray) -> pa.StructArray:
        """
        Return the envelopes: the values themselves, or their field ``payload``.
        """
        if not self._envelope.may_be_wrapped:
            return values
        *bare, payload = values.flatten()
        fields = list(values.type)[:-1]
        if payload.null_count < len(payload):
            is_wrapped = payload.is_valid()
            bare = [
                pc.if_else(is_wrapped, inside, outside)
                for inside, outside in zip(payload.flatten(), bare, strict=True)
            ]
        return pa.StructArray.from_arrays(bare, fields=fields, mask=values.is_null())

    def _without_operation(
        self, events: pa.StructArray, start: int, bad_rows: set[int]
    ) -> list[BadValue]:
        is_operation = pc.is_in(events.field(OPERATION), value_set=_OPERATIONS)
        is_event = pc.or_(is_operation, events.is_null())
        if pc.all(is_event, min_count=0).as_py():
            return []
        rows = (start + row for row in pc.indices_nonzero(pc.invert(is_event)).to_pylist())
        reason = (
            f"{self._name} is not a change event of Debezium: {OPERATION} must be one of "
            f"{', '.join(_OPERATIONS.to_pylist())}"
        )
        return [BadValue(row, reason) for row in rows if row not in bad_rows]

    def _out_of_range(self, millis: pa.Array, start: int) -> list[BadValue]:
        if pc.all(_fits(millis), min_count=0).as_py():
            return []
        reason = f"{self._name}.{MILLIS} must be TIMESTAMP, but is a number out of range"
        rows = pc.indices_nonzero(pc.invert(_fits(millis))).to_pylist()
        return [BadValue(start + row, reason) for row in rows]

    def _columns(self, events: pa.StructArray, fields: dict[str, pa.Array]) -> pa.Array:
        envelope = self._envelope
        arrays = dict(fields)
        if envelope.rows:
            arrays = _changed_rows(fields)
        arrays[envelope.operation_column] = fields[OPERATION]
        if MILLIS in fields:
            arrays[envelope.time_column] = _timestamps(fields[MILLIS])
        columns = [arrays[field.name] for field in envelope.type]
        return pa.StructArray.from_arrays(
            columns, fields=list(envelope.type), mask=events.is_null()
        )


def _changed_rows(fields: dict[str, pa.Array]) -> dict[str, pa.Array]:
    """
    Return the columns of the changed rows: as they are after a change, or before a delete.
    """
    if AFTER not in fields:
        return {}
    before, after = fields[BEFORE], fields[AFTER]
    names = [field.name for field in after.type]
    columns = after.flatten()
    is_delete = pc.fill_null(pc.equal(fields[OPERATION], "d"), fill_value=False)
    if pc.any(is_delete, min_count=0).as_py():
        columns = [
            pc.if_else(is_delete, old, new)
            for old, new in zip(before.flatten(), columns, strict=True)
        ]
    return dict(zip(names, columns, strict=True))


def _fits(millis: pa.Array) -> pa.Array:
    fits = pc.and_(pc.less_equal(millis, _MAX_MILLIS), pc.greater_equal(millis, -_MAX_MILLIS))
    return pc.fill_null(fits, fill_value=True)


def _timestamps(millis: pa.Array) -> pa.Array:
    fitting = pc.if_else(_fits(millis), millis, pa.scalar(None, pa.int64()))
    return pc.multiply(fitting, 1000).view(pa.timestamp("us", tz="UTC"))
