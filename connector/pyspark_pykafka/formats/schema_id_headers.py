"""
Puts the ids of schemas into the headers of written records, as Confluent's serializers do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pyspark_pykafka.formats.schema_names import MESSAGE_HEADERS, header_names, without_nulls
from pyspark_pykafka.schema import HEADER, HEADERS

if TYPE_CHECKING:
    from collections.abc import Mapping


class SchemaIdHeaders:
    """
    Replaces the headers that hold schema ids.

    ``ids`` has an entry for ``key`` and ``value`` if they are encoded: the content of the header to
    add, or ``b""`` to add none, because the id precedes the encoded bytes or there is no id.
    """

    def __init__(self, ids: Mapping[str, bytes]) -> None:
        # Rows that were read from a topic may still have the ids of their former schemas.
        self._replaced = [
            name for column in ids for name in (*header_names(column), MESSAGE_HEADERS[column])
        ]
        self._added = {column: value for column, value in ids.items() if value}

    def headers(
        self, row_headers: pa.Array | None, encoded: Mapping[str, pa.Array], rows: int
    ) -> pa.Array | None:
        """
        Return the headers of rows: their own without the ids of former schemas, and the new ids
        where a key or value is not null. None means no headers.
        """
        # Imported here because each import delays the start of a task.
        import pyarrow.compute as pc

        if row_headers is None and not self._added:
            return None
        lists = _Lists(pc, row_headers, rows)
        lists.remove(self._replaced)
        for column, value in self._added.items():
            name = header_names(column)[0]
            lists.append(pa.scalar({"key": name, "value": value}, HEADER), encoded[column])
        return lists.array()


class _Lists:
    """
    Lists of headers as columns: the header pairs, the row of each, and the ends of the rows.
    """

    def __init__(self, pc: Any, row_headers: pa.Array | None, rows: int) -> None:
        self._pc = pc
        self._rows = pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int32()), rows))
        if row_headers is None:
            row_headers = pa.nulls(rows, HEADERS)
        row_headers = without_nulls(row_headers.cast(HEADERS))
        self._pairs = row_headers.values
        # Rows are numbered from 1 here.
        self._parents = pc.add(pc.list_parent_indices(row_headers), 1).cast(pa.int32())
        self._ends = row_headers.offsets[1:]
        self._appended = False

    def remove(self, names: list[str]) -> None:
        """
        Remove the headers with these names.
        """
        pc = self._pc
        outdated = pc.is_in(self._pairs.field("key"), pa.array(names, pa.string()))
        if not pc.any(outdated).as_py():
            return
        kept = pc.invert(outdated)
        kept_before = pa.concat_arrays(
            [pa.array([0], pa.int32()), pc.cumulative_sum(kept.cast(pa.int32()))]
        )
        self._ends = kept_before.take(self._ends)
        self._pairs, self._parents = self._pairs.filter(kept), self._parents.filter(kept)

    def append(self, pair: pa.Scalar, values: pa.Array) -> None:
        """
        Append a header to the rows whose value is not null.
        """
        pc = self._pc
        present = values.is_valid()
        rows = self._rows.filter(present)
        self._pairs = pa.concat_arrays([self._pairs, pa.repeat(pair, len(rows))])
        self._parents = pa.concat_arrays([self._parents, rows])
        self._ends = pc.add(self._ends, pc.cumulative_sum(present.cast(pa.int32())))
        self._appended = True

    def array(self) -> pa.Array:
        """
        Return the lists; none of them is null.
        """
        pairs = self._pairs
        if self._appended:
            # The sort is stable, so the headers of a row keep their order.
            pairs = pairs.take(self._pc.sort_indices(self._parents))
        starts = pa.concat_arrays([pa.array([0], pa.int32()), self._ends.cast(pa.int32())])
        return pa.ListArray.from_arrays(starts, pairs, type=HEADERS)
