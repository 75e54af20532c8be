"""
The hash of a task's rows: equal for equal rows in any order, different for other rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_pykafka.engines.wire.records._encoder import RecordEncoder
from pyspark_pykafka.engines.wire.records.arrow_encoder import ArrowEncoder

if TYPE_CHECKING:
    import random

SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
        (
            "headers",
            pa.list_(
                pa.struct([pa.field("key", pa.string(), nullable=False), ("value", pa.binary())])
            ),
        ),
    ]
)
ROW: dict[str, Any] = {
    "topic": "t",
    "partition": 1,
    "timestamp": 1_700_000_000_000_000,
    "key": b"key",
    "value": b"a value",
    "headers": [("a", b"1"), ("b", None)],
}

small = st.one_of(st.none(), st.binary(max_size=120))
rows = st.fixed_dictionaries(
    {
        "topic": st.sampled_from(["t", "u"]),
        "partition": st.one_of(st.none(), st.integers(0, 3)),
        "timestamp": st.one_of(st.none(), st.integers(1, 2**40).map(lambda ms: ms * 1_000)),
        "key": small,
        "value": small,
        "headers": st.one_of(
            st.none(), st.lists(st.tuples(st.text(max_size=9), small), max_size=3)
        ),
    }
)


def content_hash(*batches: list[dict[str, Any]], topic: str | None = None, seed: int = 1) -> str:
    """
    Return the hash of the rows of some batches.
    """
    encoder = RecordEncoder(200, 1 << 20, seed, hashes=True)
    four = (4, range(4))
    arrow_encoder = ArrowEncoder(topic, lambda *_: four, encoder, 1 << 20, now=lambda: seed)
    for batch in batches:
        for _ in arrow_encoder.batches(pa.RecordBatch.from_pylist(batch, SCHEMA)):
            pass
    return arrow_encoder.content_hash


@given(st.lists(rows, max_size=8), st.integers(0, 8), st.randoms(use_true_random=False))
def test_order_and_batches_do_not_matter(
    all_rows: list[dict[str, Any]], split_at: int, generator: random.Random
) -> None:
    """
    The hash does not depend on order, batches, time, or the partition of rows without a key.
    """
    shuffled = generator.sample(all_rows, len(all_rows))

    assert content_hash(shuffled[:split_at], shuffled[split_at:], seed=7) == content_hash(all_rows)


@given(st.lists(rows, max_size=4), st.lists(rows, max_size=4))
def test_different_rows_have_different_hashes(
    first: list[dict[str, Any]], second: list[dict[str, Any]]
) -> None:
    """
    Hashes are equal if and only if the rows are; null headers and no headers count as the same.
    """

    def plain(row_dicts: list[dict[str, Any]]) -> list[str]:
        return sorted(
            repr(sorted({**row, "headers": row["headers"] or []}.items())) for row in row_dicts
        )

    assert (content_hash(first) == content_hash(second)) == (plain(first) == plain(second))


@pytest.mark.parametrize(
    "change",
    [
        {"topic": "u"},
        {"partition": None},
        {"partition": 2},
        {"timestamp": None},
        {"timestamp": 1_700_000_000_001_000},
        {"key": None},
        {"key": b""},
        {"value": None},
        {"value": b""},
        {"value": b"a valuf"},
        {"key": b"keya", "value": b" value"},
        {"headers": None},
        {"headers": [("a", b"1")]},
        {"headers": [("a", b"1"), ("b", b"")]},
        {"headers": [("b", None), ("a", b"1")]},
        {"headers": [("a", b"1b"), ("", None)]},
        {"key": b"a value", "value": b"key"},
    ],
    ids=str,
)
def test_each_field_counts(change: dict[str, Any]) -> None:
    """
    The hash depends on every field, and on the field that bytes belong to.
    """
    assert content_hash([{**ROW, **change}]) != content_hash([ROW])


@pytest.mark.parametrize("size", [*range(1, 70), 1_000, 4_097])
def test_each_byte_counts(size: int) -> None:
    """
    The hash depends on every byte, for all lengths that are hashed differently.
    """
    value = bytes(size)
    hashes = {
        content_hash([{**ROW, "value": value[:position] + b"\x01" + value[position + 1 :]}])
        for position in range(size)
    }

    assert len(hashes | {content_hash([{**ROW, "value": value}])}) == size + 1


def test_equal_rows_add_up() -> None:
    """
    Two equal rows do not cancel out, as they would with exclusive or.
    """
    assert len({content_hash([ROW] * count) for count in range(4)}) == 4
    assert content_hash([]) == "0" * 16


def test_topic_option_hashes_like_a_topic_column() -> None:
    """
    A row has the same hash, whether its topic is in a column or in the option.
    """
    assert content_hash([{**ROW, "topic": None}], topic="t") == content_hash([ROW])


def test_hash_is_stable() -> None:
    """
    The ledger stores hashes, so they must not change between machines and versions.
    """
    long = {**ROW, "value": bytes(range(256)), "headers": None}

    assert [content_hash([ROW]), content_hash([long])] == ["6edffe61ec982ea4", "89b493a3578e075b"]
