"""
Decodes the keys and values of a read's Arrow batches, and builds the batches for Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from pyspark_pykafka.engines.contract import BATCH_RECORDS
from pyspark_pykafka.formats.bad_records import describe_bad_record
from pyspark_pykafka.formats.columns import TextColumn, joined, without_last_field
from pyspark_pykafka.formats.read_format import FLAT_PREFIX, RESCUE_TYPES, RESCUED_FIELDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pyspark_pykafka.engines.contract import FetchSettings
    from pyspark_pykafka.formats.bad_record_topic import BadRecordTopic
    from pyspark_pykafka.formats.bad_records import BadRecordPolicy
    from pyspark_pykafka.formats.columns import ValueColumn
    from pyspark_pykafka.formats.read_format import ReadFormat, TypedColumn
    from pyspark_pykafka.offsets import TopicPartition

    _ArrayBuilder = Callable[[Mapping[str, pa.Array]], pa.Array]

# Half of the 2 GiB that an Arrow column with 32-bit offsets can have.
_MAX_COLUMN_BYTES = 1 << 30

# A batch of decoded rows has up to the bytes of this many batches of records: the more rows it has,
# the less the fixed work for each of its columns costs per row (docs/decisions/0006).
_DECODED_BATCHES = 2


def decode_records(
    batches: Iterable[pa.RecordBatch],
    tp: TopicPartition,
    read_format: ReadFormat,
    settings: FetchSettings,
    micro_batch: int = -1,
) -> Iterator[pa.RecordBatch]:
    """
    Yield rows for the records of one partition; the schema of ``batches`` is ``record_schema``.

    ``micro_batch`` is the id for dead letters, or -1. Raises :class:`RecordError` for a bad record
    that the policy does not allow, and :class:`DeadLetterError` if a dead letter cannot be written.
    """
    if read_format.schema.names == read_format.record_schema.names and not read_format.typed:
        return iter(batches)
    return _RecordDecoder(tp, read_format, settings, micro_batch).rows(batches)


class _RecordDecoder:
    """
    Builds batches of rows from decoded columns and from record columns that are copied unchanged.
    """

    def __init__(
        self,
        tp: TopicPartition,
        read_format: ReadFormat,
        settings: FetchSettings,
        micro_batch: int,
    ) -> None:
        self._tp = tp
        self._format = read_format
        self._max_bytes = _DECODED_BATCHES * settings.batch_bytes
        # The limit of each decoded column; the rest is for the records' bytes and fetched data.
        memory = min(settings.memory_bytes // 2, _MAX_COLUMN_BYTES)
        self._columns = {column.name: self._column(column, memory) for column in read_format.typed}
        # Looked up once: pyarrow makes a new object each time that a field or its type is read.
        self._builders = [self._builder(field) for field in read_format.schema]
        self._needs_headers = "headers" in read_format.record_schema.names
        self._sources = list(dict.fromkeys(name for _, name in read_format.sources))
        self._parts: list[pa.RecordBatch] = []
        self._part_bytes = 0
        self._rows = 0
        self._bad_count = 0
        self._errors: dict[int, str] = {}
        self._raw: dict[int, bytes] = {}
        self._dead_letters = self._bad_record_topic(settings, micro_batch)

    def _bad_record_topic(self, settings: FetchSettings, micro_batch: int) -> BadRecordTopic | None:
        topic = self._format.dead_letter_topic
        if topic is None:
            return None
        from pyspark_pykafka.formats.bad_record_topic import BadRecordTopic

        return BadRecordTopic(topic, self._tp, settings, micro_batch)

    def _column(self, column: TypedColumn, max_bytes: int) -> ValueColumn:
        if column.envelope is None:
            return self._decoded_column(column, max_bytes)
        from pyspark_pykafka.formats.debezium_column import DebeziumColumn

        # The columns that are made from the envelopes need the same amount of memory.
        decoded = self._decoded_column(column, max_bytes // 2)
        return DebeziumColumn(column.name, column.envelope, decoded)

    def _decoded_column(self, column: TypedColumn, max_bytes: int) -> ValueColumn:
        if column.format == "text":
            return TextColumn(column.name, self._format.policy)
        policy, registry = self._format.policy, column.registry
        # Imported here because an installation may lack the compiled modules.
        if column.format == "avro":
            common = column.name, column.type, column.schema, max_bytes, policy
            if registry is not None:
                from pyspark_pykafka.formats.registered_avro import RegisteredAvroColumn
                from pyspark_pykafka.formats.registered_schemas import WriterSchemas

                return RegisteredAvroColumn(
                    *common,
                    id_bytes=registry.id_bytes,
                    writers=WriterSchemas(registry, column.subject),
                    compares_names=column.compares_names,
                )
            from pyspark_pykafka.formats.avro_decoder import AvroColumn

            return AvroColumn(*common)
        if column.format == "protobuf":
            return _protobuf_column(column, max_bytes, policy)
        from pyspark_pykafka.formats.json_decoder import JsonColumn

        id_bytes = 0 if registry is None else registry.id_bytes
        return JsonColumn(
            column.name, column.type, max_bytes, policy, id_bytes, rescues=column.rescues
        )

    def rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            start = 0
            while start < batch.num_rows:
                start = self._decode(batch, start)
                if start < batch.num_rows or self._is_full:
                    yield from self._take()
        if self._rows:
            yield from self._take()

    @property
    def _is_full(self) -> bool:
        """
        Whether the rows reach the row limit of one batch of records, or the byte limit of two.

        Rows that are much smaller than their records are collected from several batches.
        """
        size = self._part_bytes + sum(column.nbytes for column in self._columns.values())
        if self._dead_letters is not None:
            size += self._dead_letters.nbytes
        return self._rows >= BATCH_RECORDS or size >= self._max_bytes

    def _decode(self, batch: pa.RecordBatch, start: int) -> int:
        """
        Decode the rows of a batch from ``start`` on; return the next row, which is before the
        batch's end if a column is full.
        """
        end: int = batch.num_rows
        headers = batch.column("headers") if self._needs_headers else None
        for name, column in self._columns.items():
            end = column.decode(batch.column(name), start, end, headers)
        for name, column in self._columns.items():
            column.keep(self._rows + end - start)
            self._record_bad(batch, name, column, start, end)
        if self._dead_letters is not None:
            self._add_dead_letters(batch, start, self._dead_letters)
        if self._sources:
            # The encoded keys and values, often the largest part of a record, are dropped.
            part = batch.select(self._sources).slice(start, end - start)
            self._parts.append(part)
            self._part_bytes += sum(part.column(name).nbytes for name in self._sources)
        self._rows += end - start
        return end

    def _add_dead_letters(
        self, batch: pa.RecordBatch, start: int, dead_letters: BadRecordTopic
    ) -> None:
        new = {
            row_number - self._rows + start: reason
            for row_number, reason in self._errors.items()
            if row_number >= self._rows
        }
        if new:
            dead_letters.add(batch, new)

    def _record_bad(
        self, batch: pa.RecordBatch, name: str, column: ValueColumn, start: int, end: int
    ) -> None:
        policy = self._format.policy
        for row, reason in column.take_bad():
            # All columns are cut at the row at which the first of them stopped. Rows from there on
            # are decoded again, unless a bad value ends the read.
            if row >= end and not policy.fails:
                continue
            offset = batch.column("offset")[row].as_py()
            if not self._format.accepts_bad_records:
                from pyspark_pykafka.source.driver_read import NeedsTaskError

                raise NeedsTaskError(describe_bad_record(self._tp, offset, reason))
            row_number = self._rows + row - start
            self._bad_count += row_number not in self._errors
            policy.check(self._tp, offset, reason, self._bad_count)
            earlier = self._errors.get(row_number)
            self._errors[row_number] = reason if earlier is None else f"{earlier}; {reason}"
            if policy.action == "rescue" and row_number not in self._raw:
                self._raw[row_number] = batch.column(name)[row].as_py()
                self._part_bytes += len(self._raw[row_number])

    def _take(self) -> Iterator[pa.RecordBatch]:
        """
        Yield the rows once their dead letters are acknowledged; yield nothing if no row is left.
        """
        if self._dead_letters is not None:
            self._dead_letters.write()
        rows = self._take_rows()
        if rows.num_rows:
            yield rows

    def _take_rows(self) -> pa.RecordBatch:
        decoded = {name: column.take() for name, column in self._columns.items()}
        arrays = [build(decoded) for build in self._builders]
        rows = pa.RecordBatch.from_arrays(arrays, schema=self._format.schema)
        if (mask := self._kept_rows(decoded)) is not None:
            rows = rows.filter(mask)
        self._parts, self._part_bytes, self._rows = [], 0, 0
        self._errors, self._raw = {}, {}
        return rows

    def _kept_rows(self, decoded: dict[str, pa.Array]) -> pa.Array | None:
        """
        Return a mask without the rows of dead letters and tombstones, or None if all rows are kept.
        """
        is_good = None
        if self._dead_letters is not None and self._errors:
            is_good = _all_but(self._rows, self._errors)
        if not self._format.drops_tombstones or not decoded["value"].null_count:
            return is_good
        import pyarrow.compute as pc

        # A bad value may be NULL too, and its row is kept unless the record is a dead letter.
        is_event = decoded["value"].is_valid()
        if is_good is not None:
            return pc.and_(is_event, is_good)
        if not self._errors:
            return is_event
        return pc.or_(is_event, pc.invert(_all_but(self._rows, self._errors)))

    def _builder(self, field: pa.Field) -> _ArrayBuilder:
        """
        Return the function that makes a column of rows from the decoded columns.
        """
        name, kind = field.name, field.type
        source = self._format.record_column(name)
        if source is not None:
            return lambda _: joined([part.column(source) for part in self._parts], kind)
        if self._format.policy.action == "rescue" and name in RESCUE_TYPES:
            return lambda _: self._rescue_column(
                self._errors if name == "_error" else self._raw, kind
            )
        return self._value_builder(name, kind)

    def _value_builder(self, name: str, kind: pa.DataType) -> _ArrayBuilder:
        if self._format.rescues_unknown_fields:
            # The last field of the value, after the fields of the user's schema.
            if name == RESCUED_FIELDS:
                return lambda decoded: decoded["value"].field(decoded["value"].type.num_fields - 1)
            if name == "value":
                return lambda decoded: without_last_field(decoded["value"], kind)
        if not self._format.flattens:
            return lambda decoded: decoded[name]
        if name == f"{FLAT_PREFIX}key":
            return lambda decoded: decoded["key"]
        return lambda decoded: decoded["value"].field(name)

    def _rescue_column(
        self, values: dict[int, str] | dict[int, bytes], kind: pa.DataType
    ) -> pa.Array:
        if not values:
            return pa.nulls(self._rows, kind)
        return pa.array([values.get(row) for row in range(self._rows)], kind)


def _all_but(rows: int, excluded: Iterable[int]) -> pa.Array:
    """
    Return a mask that is true for all rows except the excluded ones.
    """
    mask = bytearray(b"\xff" * ((rows + 7) // 8))
    for row in excluded:
        mask[row // 8] &= ~(1 << row % 8)
    return pa.Array.from_buffers(pa.bool_(), rows, [None, pa.py_buffer(mask)])


def _protobuf_column(column: TypedColumn, max_bytes: int, policy: BadRecordPolicy) -> ValueColumn:
    from pyspark_pykafka.formats.protobuf_schemas import ResolvedSchema

    schema = ResolvedSchema(column.schema, column.message)
    common = column.name, column.type, schema, max_bytes, policy
    if column.registry is None:
        from pyspark_pykafka.formats.protobuf_decoder import ProtobufColumn

        return ProtobufColumn(*common)
    from pyspark_pykafka.formats.registered_protobuf import RegisteredProtobufColumn
    from pyspark_pykafka.formats.registered_schemas import WriterSchemas

    registry = column.registry
    return RegisteredProtobufColumn(
        *common, id_bytes=registry.id_bytes, writers=WriterSchemas(registry, column.subject)
    )
