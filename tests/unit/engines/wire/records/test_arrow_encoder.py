"""
Encoding of Arrow rows to record batches, verified by independent decoders.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords
from tests.support.arrow_forms import any_form

from pyspark_pykafka.engines.wire.records._encoder import RecordEncoder, partition_for
from pyspark_pykafka.engines.wire.records.arrow_decoder import ArrowDecoder
from pyspark_pykafka.engines.wire.records.arrow_encoder import ArrowEncoder
from pyspark_pykafka.engines.wire.records.compression import CODECS, Decompressor
from pyspark_pykafka.engines.wire.records.record_batch import ProducerBatch, ProducerIdAndEpoch
from pyspark_pykafka.errors import RecordError, UnknownTopicError
from pyspark_pykafka.offsets import TopicPartition
from pyspark_pykafka.schema import HEADERS, SOURCE_TYPES, TIMESTAMP

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Sequence

NOW = 1_700_000_000.0
WRITER = ProducerIdAndEpoch(producer_id=7, epoch=2)
MANY = 2**31 - 1

_TYPES = {
    "topic": pa.string(),
    "key": pa.binary(),
    "value": pa.binary(),
    "partition": pa.int32(),
    "timestamp": TIMESTAMP,
    "headers": HEADERS,
}
_DATA = st.none() | st.binary(max_size=300)
_HEADERS = st.none() | st.lists(
    st.fixed_dictionaries({"key": st.text(max_size=5), "value": _DATA}), max_size=3
)
_ROWS = st.fixed_dictionaries(
    {
        "topic": st.sampled_from(["a", "b"]),
        "key": _DATA,
        "value": _DATA,
        "partition": st.none() | st.integers(0, 3),
        "timestamp": st.none() | st.integers(1_000, 4_000_000_000_000_000),
        "headers": _HEADERS,
    }
)


def arrow(rows: Sequence[dict[str, Any]], **types: pa.DataType) -> pa.RecordBatch:
    """
    Return the rows as Spark passes them, with the columns of the first row.
    """
    names = [name for name in _TYPES if rows and name in rows[0]]
    schema = pa.schema([pa.field(name, types.get(name, _TYPES[name])) for name in names])
    return pa.RecordBatch.from_pylist(list(rows), schema=schema)


def four_partitions(_: str, __: int) -> tuple[int, list[int]]:
    """
    Return four partitions, all with a leader.
    """
    return 4, [0, 1, 2, 3]


def encoder_of(
    topic: str | None = None,
    batch_bytes: int = 1 << 16,
    record_bytes: int = 1 << 20,
    max_open_bytes: int = 1 << 30,
) -> ArrowEncoder:
    """
    Return an encoder for topics of four partitions.
    """
    record_encoder = RecordEncoder(batch_bytes, record_bytes, seed=1)
    return ArrowEncoder(topic, four_partitions, record_encoder, max_open_bytes, now=lambda: NOW)


def encoded(
    batches: Iterable[pa.RecordBatch], encoder: ArrowEncoder, codec: str = "none"
) -> dict[TopicPartition, list[ProducerBatch]]:
    """
    Return the record batches by partition, in order, with their sequence numbers.
    """
    out: defaultdict[TopicPartition, list[ProducerBatch]] = defaultdict(list)
    for batch in batches:
        for tp, payload in encoder.batches(batch):
            out[tp].append(ProducerBatch.of(payload, codec, -1, NOW))
    for tp, payload in encoder.flush():
        out[tp].append(ProducerBatch.of(payload, codec, -1, NOW))
    for produced in out.values():
        sequence = 0
        for batch in produced:
            batch.sequence = sequence
            sequence += batch.count
    return dict(out)


def bytes_of(batch: ProducerBatch) -> bytes:
    """
    Return the encoded batch.
    """
    return b"".join(bytes(piece) for piece in batch.encode(WRITER))


def logged(batches: Sequence[ProducerBatch]) -> bytes:
    """
    Return the batches as in a log, with consecutive offsets.
    """
    log, offset = b"", 0
    for batch in batches:
        log += offset.to_bytes(8, "big") + bytes_of(batch)[8:]
        offset += batch.count
    return log


def read(tp: TopicPartition, batches: Sequence[ProducerBatch]) -> list[dict[str, Any]]:
    """
    Return the rows as ArrowDecoder decodes them.
    """
    arrow_decoder = ArrowDecoder.of_range(
        tp,
        0,
        sum(batch.count for batch in batches),
        pa.schema(SOURCE_TYPES.items()),
        Decompressor(1 << 22),
        max_records=1000,
        max_bytes=1 << 22,
        check_crcs=True,
    )
    decoded = [*arrow_decoder.batches(logged(batches), ()), *arrow_decoder.flush()]
    return [row for batch in decoded for row in batch.to_pylist()]


def murmur2(key: bytes) -> int:
    """
    Return Java's hash of a key, computed from its definition.
    """
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = 0x9747B28C ^ len(key)
    whole = len(key) - len(key) % 4
    for start in range(0, whole, 4):
        k = int.from_bytes(key[start : start + 4], "little") * m & mask
        h = (h * m & mask) ^ ((k ^ k >> 24) * m & mask)
    if whole < len(key):
        h = (h ^ int.from_bytes(key[whole:], "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


def partition_of(row: dict[str, Any]) -> int | None:
    """
    Return the expected partition of a row, or None for any.
    """
    if row["partition"] is not None:
        return int(row["partition"])
    return None if row["key"] is None else (murmur2(row["key"]) & 0x7FFFFFFF) % 4


def in_any_form(batch: pa.RecordBatch, generator: random.Random) -> pa.RecordBatch:
    """
    Return an equal batch whose header lists have other offsets, and hidden entries where null.
    """
    index = batch.schema.get_field_index("headers")
    headers = any_form(batch.column(index), generator, wide=False, dictionaries=False)
    return batch.set_column(index, "headers", headers)


@settings(max_examples=60)
@given(
    st.lists(st.lists(_ROWS, max_size=30), min_size=1, max_size=3),
    st.sampled_from(sorted(CODECS)),
    st.sampled_from([100, 1_000, 1 << 16]),
    st.sampled_from([1, 1 << 30]),
    st.randoms(use_true_random=False),
)
def test_rows_round_trip(
    parts: list[list[dict[str, Any]]],
    codec: str,
    batch_bytes: int,
    max_open_bytes: int,
    generator: random.Random,
) -> None:
    """
    For any rows, codec and sizes, each row is in its topic and partition once, complete and in
    order. Each row's timestamp is its number.
    """
    rows = [row for part in parts for row in part]
    for number, row in enumerate(rows, 1):
        row["timestamp"] = number * 1_000_000
    encoder = encoder_of(batch_bytes=batch_bytes, max_open_bytes=max_open_bytes)

    batches_in = [in_any_form(arrow(part), generator) for part in parts if part]
    out = encoded(batches_in, encoder, codec)

    written = []
    for tp, batches in out.items():
        numbers = []
        for record in read(tp, batches):
            numbers.append(int(record["timestamp"].timestamp()))
            row = rows[numbers[-1] - 1]
            assert tp.topic == row["topic"]
            assert partition_of(row) in {None, tp.partition}
            assert (record["key"], record["value"]) == (row["key"], row["value"])
            assert (record["headers"] or []) == (row["headers"] or [])
        assert numbers == sorted(numbers)
        written += numbers
    assert sorted(written) == list(range(1, len(rows) + 1))


@settings(max_examples=60)
@given(
    st.lists(st.lists(_ROWS, max_size=20), min_size=1, max_size=3),
    st.sampled_from([100, 1 << 16]),
    st.sampled_from([None, "t"]),
    st.randoms(use_true_random=False),
)
def test_topics_get_partitions_at_any_row(
    parts: list[list[dict[str, Any]]],
    batch_bytes: int,
    topic: str | None,
    generator: random.Random,
) -> None:
    """
    Each row for a partition that its topic did not have is written there once and in order, and
    the hash of all rows is that of a topic which had the partitions before.
    """
    rows = [row for part in parts for row in part]
    for number, row in enumerate(rows, 1):
        row["timestamp"] = number * 1_000_000
    counts: defaultdict[str, int] = defaultdict(lambda: 1)

    def partitions(name: str, min_count: int) -> tuple[int, list[int]]:
        counts[name] = max(counts[name], min_count)
        return counts[name], list(range(counts[name]))

    growing, full = (
        ArrowEncoder(topic, source, RecordEncoder(batch_bytes, 1 << 20, 1, hashes=True), 1 << 30)
        for source in (partitions, four_partitions)
    )
    batches_in = [in_any_form(arrow(part), generator) for part in parts if part]
    encoded(batches_in, full)
    written = []
    for tp, batches in encoded(batches_in, growing).items():
        numbers = [int(record["timestamp"].timestamp()) for record in read(tp, batches)]
        assert numbers == sorted(numbers)
        assert {rows[number - 1]["partition"] for number in numbers} <= {None, tp.partition}
        assert topic or {rows[number - 1]["topic"] for number in numbers} == {tp.topic}
        written += numbers

    assert sorted(written) == list(range(1, len(rows) + 1))
    assert growing.content_hash == full.content_hash


@settings(max_examples=30)
@given(st.lists(_ROWS, min_size=1, max_size=20), st.sampled_from(["none", "gzip"]))
def test_kafka_python_decodes_the_batches(rows: list[dict[str, Any]], codec: str) -> None:
    """
    kafka-python decodes the batches: producer id, timestamps, checksum and records.
    """
    for row in rows:
        row["partition"] = 1
    out = encoded([arrow(rows)], encoder_of("t"), codec)

    (batch,) = MemoryRecords(logged(out[TopicPartition("t", 1)]))
    assert batch.validate_crc()
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (*WRITER, 0)
    times = [int(NOW * 1000) if r["timestamp"] is None else r["timestamp"] // 1000 for r in rows]
    assert batch.max_timestamp == max(times)
    records = list(batch)
    assert [record.timestamp for record in records] == times
    assert [(r.key, r.value) for r in records] == [(r["key"], r["value"]) for r in rows]
    for record, row in zip(records, rows, strict=True):
        assert record.headers == [(h["key"], h["value"]) for h in row["headers"] or []]


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_keys_are_hashed_as_in_java(key: bytes, expected: int) -> None:
    """
    The hashes are those of Kafka's own tests (UtilsTest).
    """
    assert murmur2(key) == expected % 2**32
    assert partition_for(key, MANY) == (expected & 0x7FFFFFFF) % MANY


@given(st.binary(max_size=40), st.integers(1, 100))
def test_any_key_is_hashed_as_in_java(key: bytes, partitions: int) -> None:
    """
    The hash of any key equals the definition in plain Python.
    """
    assert partition_for(key, partitions) == (murmur2(key) & 0x7FFFFFFF) % partitions


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.large_binary()], ids=str)
def test_string_and_large_columns(kind: pa.DataType) -> None:
    """
    Strings are written as UTF-8, and columns with 64-bit offsets like others.
    """
    rows: list[dict[str, Any]] = [{"key": "k", "value": "Grüße"}, {"key": "k", "value": None}]
    if kind == pa.large_binary():
        rows = [{"key": b"k", "value": "Grüße".encode()}, {"key": b"k", "value": None}]

    out = encoded([arrow(rows, key=kind, value=kind)], encoder_of("t"))

    ((tp, batches),) = out.items()
    assert [row["value"] for row in read(tp, batches)] == ["Grüße".encode(), None]


def test_slices_are_written_from_their_offset() -> None:
    """
    A slice shares the buffers of its batch, so nulls and nested headers need its offset.
    """
    rows = [
        {
            "key": None if i % 3 else b"k%d" % i,
            "value": b"v%d" % i if i % 4 else None,
            "partition": 2,
            "headers": [{"key": f"h{i}", "value": None if i % 2 else b"x"}] * (i % 3),
        }
        for i in range(40)
    ]
    out = encoded([arrow(rows).slice(11, 20)], encoder_of("t"))

    records = read(TopicPartition("t", 2), out[TopicPartition("t", 2)])
    assert [(r["key"], r["value"], r["headers"] or []) for r in records] == [
        (r["key"], r["value"], r["headers"]) for r in rows[11:31]
    ]


def test_batches_stay_within_their_size() -> None:
    """
    A batch exceeds its size only for a single larger record.
    """
    rows = [{"value": b"x" * size, "partition": 0} for size in [300, 300, 5_000, 300, 300, 300]]
    (batches,) = encoded([arrow(rows)], encoder_of("t", batch_bytes=1_000)).values()

    assert [batch.count for batch in batches] == [2, 1, 2, 1]
    assert [batch.size_bytes <= 1_000 for batch in batches] == [True, False, True, True]


def test_rows_without_a_key_use_the_sticky_partitioner() -> None:
    """
    Rows without a key go to one partition until its batch is full (KIP-480), then to another, and
    never to one without a leader.
    """
    requested = []

    def partitions(topic: str, _: int) -> tuple[int, list[int]]:
        requested.append(topic)
        return 4, [1, 3]

    encoder = ArrowEncoder("t", partitions, RecordEncoder(1_000, 1 << 20, seed=5), 1 << 30)
    rows = [{"value": b"x" * 90} for _ in range(100)]
    out = [(tp.partition, payload.count) for tp, payload in encoder.batches(arrow(rows))]

    numbers = [partition for partition, _ in out]
    assert set(numbers) == {1, 3}
    assert all(a != b for a, b in itertools.pairwise(numbers))
    assert requested == ["t"]


def test_open_batches_are_bounded() -> None:
    """
    Open batches are flushed when their total size exceeds the limit.
    """
    encoder = encoder_of("t", max_open_bytes=1_500)
    rows = [{"value": b"x" * 400, "partition": number} for number in range(4)]

    assert list(encoder.batches(arrow(rows[:3]))) == []
    assert sorted(tp.partition for tp, _ in encoder.batches(arrow(rows[3:]))) == [0, 1, 2, 3]
    assert list(encoder.flush()) == []


@pytest.mark.parametrize(
    ("row", "match"),
    [
        ({"topic": None, "key": b"k", "value": b"v"}, r"null topic .*row 1 .*key b'k'"),
        (
            {"topic": "a", "key": b"k", "value": b"v", "partition": 4},
            r"key b'k' for topic 'a', partition 4 .*the partitions 0 to 3",
        ),
        (
            {"topic": "a", "key": b"k", "value": b"v", "partition": -1},
            r"partition -1 .*the partitions 0 to 3",
        ),
        (
            {"topic": "a", "key": b"k", "value": b"x" * 2_000},
            r"key b'k' for topic 'a'.*about 2\d{3} bytes; raise kafka.max.request.size",
        ),
        ({"topic": "a", "value": b"v", "timestamp": 999}, "timestamp.*the first valid time"),
        (
            {"topic": "a", "value": b"v", "headers": [{"key": None, "value": b"v"}]},
            "a header without a key",
        ),
        ({"topic": "a", "value": b"v", "headers": [None]}, "a header without a key"),
    ],
)
def test_invalid_rows_are_refused(row: dict[str, Any], match: str) -> None:
    """
    An invalid row after a valid one raises an error that describes it.
    """
    valid = {**dict.fromkeys(row), "topic": "a", "value": b"v"}
    encoder = encoder_of(record_bytes=1_500)

    with pytest.raises(RecordError, match=match):
        encoded([arrow([valid, row])], encoder)


def test_unknown_topic_error_names_the_first_row() -> None:
    """
    The topic may come from a column, so the error names the first row with it.
    """

    def partitions(topic: str, _: int) -> tuple[int, list[int]]:
        if topic == "a":
            return 1, [0]
        msg = "topic 'b' was not found"
        raise UnknownTopicError(msg)

    encoder = ArrowEncoder(None, partitions, RecordEncoder(1_000, 1 << 20, seed=5), 1 << 30)
    rows = [
        {"topic": "a", "key": b"1", "value": b"v"},
        {"topic": "b", "key": b"2", "value": b"v"},
    ]

    with pytest.raises(UnknownTopicError, match="key b'2' for topic 'b' cannot be written: topic"):
        list(encoder.batches(arrow(rows)))


def test_row_for_the_ledger_is_refused() -> None:
    """
    A row for the ledger topic is refused before metadata is requested.
    """
    record_encoder = RecordEncoder(1 << 16, 1 << 20, seed=1)
    encoder = ArrowEncoder(None, four_partitions, record_encoder, 1 << 30, ledger_topic="b")
    valid = {"topic": "a", "key": b"1", "value": b"v"}
    encoded([arrow([valid])], encoder)

    with pytest.raises(RecordError, match="key b'2' for topic 'b' cannot be written") as caught:
        list(encoder.batches(arrow([valid, {"topic": "b", "key": b"2", "value": b"v"}])))

    assert caught.value.condition == "EXACTLY_ONCE_ROW_FOR_LEDGER"
    assert "transactionalIdPrefix" in str(caught.value)


def test_topic_option_overrides_the_column() -> None:
    """
    The option overrides the column, also for rows without a topic.
    """
    rows: list[dict[str, Any]] = [{"topic": None, "value": b"v"}, {"topic": "a", "value": b"v"}]

    out = encoded([arrow(rows)], encoder_of("t"))

    assert {tp.topic for tp in out} == {"t"}
    assert sum(batch.count for batches in out.values() for batch in batches) == 2
