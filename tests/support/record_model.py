"""
A plain model of a log of record batches: its visible records, and strategies for such logs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from tests.support.record_batches import CODECS, SNAPPY, Batch, Record, marker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

MAX_MILLIS = (2**63 - 1) // 1000
TOPIC, PARTITION = "a-topic", 3

_TIMES = st.sampled_from([-1, 0, 1_700_000_000_000, MAX_MILLIS, -MAX_MILLIS]) | st.integers(
    -(10**6), 10**6
)
_TEXT = st.sampled_from([None, b"", b"k", "gr\u00fc\u00dfe \u4f60".encode(), b"long" * 500])
_BYTES = _TEXT | st.binary(max_size=12)
_HEADER_KEYS = st.sampled_from([b"", b"trace", b"trace", "\u00fc".encode()])


@dataclass(frozen=True, slots=True)
class Transaction:
    """
    A transaction in a log: the offsets of its first record and its marker, and its outcome.
    """

    producer_id: int
    first: int
    end: int
    aborted: bool


@dataclass(frozen=True, slots=True)
class Log:
    """
    Record batches and the transactions that they belong to.
    """

    batches: tuple[Batch, ...]
    transactions: tuple[Transaction, ...]

    @property
    def end(self) -> int:
        return self.batches[-1].last_offset + 1 if self.batches else 0

    def aborted(self, first: int, last: int) -> list[tuple[int, int]]:
        """
        Return the aborted transactions of a fetch of these offsets: (first offset, producer id).
        """
        return [
            (t.first, t.producer_id)
            for t in self.transactions
            if t.aborted and t.end >= first and t.first <= last
        ]

    def visible(self, start: int, end: int, *, committed: bool) -> Iterator[tuple[Batch, int]]:
        """
        Yield each visible record of [start, end), as its batch and its index there.
        """
        for batch in self.batches:
            if batch.control or (committed and self._is_aborted(batch)):
                continue
            for i, record in enumerate(batch.records):
                if start <= record.offset < end:
                    yield batch, i

    def _is_aborted(self, batch: Batch) -> bool:
        return batch.transactional and any(
            t.producer_id == batch.producer_id and t.first <= batch.base_offset < t.end
            for t in self.transactions
            if t.aborted
        )


def expected(rows: Sequence[tuple[Batch, int]], names: Sequence[str]) -> dict[str, list[Any]]:
    """
    Return the expected columns of these records.
    """
    return {name: [_CELLS[name](batch, batch.records[i]) for batch, i in rows] for name in names}


def batch_sizes(lengths: Sequence[int], max_records: int, max_bytes: int) -> list[int]:
    """
    Return the number of rows of each Arrow batch, which ends before a record that would not fit.
    """
    sizes: list[int] = []
    size = 0
    for length in lengths:
        if not sizes or sizes[-1] >= max_records or size + length > max_bytes:
            sizes.append(0)
            size = 0
        sizes[-1] += 1
        size += length
    return sizes


def _time(batch: Batch, record: Record) -> int:
    millis = record.timestamp if batch.log_append_time is None else batch.log_append_time
    return millis * 1000


def _headers(_batch: Batch, record: Record) -> list[dict[str, Any]] | None:
    return [{"key": k.decode(), "value": v} for k, v in record.headers] or None


_CELLS: dict[str, Callable[[Batch, Record], Any]] = {
    "key": lambda _, record: record.key,
    "value": lambda _, record: record.value,
    "topic": lambda *_: TOPIC,
    "partition": lambda *_: PARTITION,
    "offset": lambda _, record: record.offset,
    "timestamp": _time,
    "timestampType": lambda batch, _: int(batch.log_append_time is not None),
    "headers": _headers,
}


@st.composite
def batches(draw: st.DrawFn, base: int, data: st.SearchStrategy[bytes | None]) -> Batch:
    """
    Return a batch without a transaction, with offset gaps before, within and after it.
    """
    first = base + draw(st.integers(0, 2))
    offset = first - 1
    records = []
    for gap in draw(st.lists(st.integers(1, 3), max_size=5)):
        offset += gap
        records.append(draw(_records(offset, data)))
    return Batch(
        first,
        max(first, offset) + draw(st.integers(0, 2)),
        tuple(records),
        codec=draw(st.sampled_from(CODECS)),
        log_append_time=draw(st.none() | _TIMES),
    )


@st.composite
def _records(draw: st.DrawFn, offset: int, data: st.SearchStrategy[bytes | None]) -> Record:
    headers = draw(st.lists(st.tuples(_HEADER_KEYS, _BYTES), max_size=3))
    return Record(offset, draw(_TIMES), draw(data), draw(data), tuple(headers))


@st.composite
def logs(draw: st.DrawFn, *, text: bool) -> Log:
    """
    Return a log of non-transactional batches and interleaved transactions, all of them ended.
    """
    offset = draw(st.sampled_from([0, 7, 2**40, 2**63 - 1000]))
    builder = _LogBuilder(draw, offset, _TEXT if text else _BYTES)
    for _ in range(draw(st.integers(1, 7))):
        builder.step(draw(st.sampled_from([None, 1, 1, 2, 3])))
    for producer in list(builder.open):
        builder.end(producer)
    return Log(tuple(builder.batches), tuple(builder.transactions))


class _LogBuilder:
    def __init__(self, draw: st.DrawFn, offset: int, data: st.SearchStrategy[bytes | None]) -> None:
        self.draw = draw
        self.offset = offset
        self.data = data
        self.batches: list[Batch] = []
        self.transactions: list[Transaction] = []
        self.open: dict[int, int] = {}

    def step(self, producer: int | None) -> None:
        if producer in self.open and self.draw(st.booleans()):
            self.end(producer)
            return
        plain = self.draw(batches(self.offset, self.data))
        xerial = self.draw(st.sampled_from([0, 1, 100])) if plain.codec == SNAPPY else 0
        self.add(
            Batch(
                plain.base_offset,
                plain.last_offset,
                plain.records,
                plain.codec,
                plain.log_append_time,
                -1 if producer is None else producer,
                producer is not None,
                xerial_block=xerial,
            )
        )
        if producer is not None:
            self.open.setdefault(producer, plain.base_offset)

    def end(self, producer: int) -> None:
        abort = self.draw(st.booleans())
        first = self.open.pop(producer)
        self.transactions.append(Transaction(producer, first, self.offset, abort))
        self.add(marker(self.offset, producer, abort=abort))

    def add(self, batch: Batch) -> None:
        self.batches.append(batch)
        self.offset = batch.last_offset + 1
