"""
The hash of a task's rows: the same for the same rows in any order, another for any others.
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


def content(*batches: list[dict[str, Any]], topic: str | None = None, seed: int = 1) -> str:
    """
    Return the hash of rows that come in some batches.
    """
    encoder = RecordEncoder(200, 1 << 20, seed, hashes=True)
    it = ArrowEncoder(topic, lambda _: (4, range(4)), encoder, 1 << 20, now=lambda: seed)
    for batch in batches:
        for _ in it.batches(pa.RecordBatch.from_pylist(batch, SCHEMA)):
            pass
    return it.content_hash


@given(st.lists(rows, max_size=8), st.integers(0, 8), st.randoms(use_true_random=False))
def test_order_and_batches_do_not_matter(
    given_rows: list[dict[str, Any]], cut: int, chance: random.Random
) -> None:
    """
    Nor does when it is, nor where rows without a key go.
    """
    mixed = chance.sample(given_rows, len(given_rows))

    assert content(mixed[:cut], mixed[cut:], seed=7) == content(given_rows)


@given(st.lists(rows, max_size=4), st.lists(rows, max_size=4))
def test_other_rows_have_another(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> None:
    """
    Whatever differs: a row more, a field, null for empty.
    """

    def plain(some: list[dict[str, Any]]) -> list[str]:
        return sorted(repr(sorted({**it, "headers": it["headers"] or []}.items())) for it in some)

    assert (content(ours) == content(theirs)) == (plain(ours) == plain(theirs))


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
    As does to which field the bytes belong.
    """
    assert content([{**ROW, **change}]) != content([ROW])


@pytest.mark.parametrize("size", [*range(1, 70), 1_000, 4_097])
def test_each_byte_counts(size: int) -> None:
    """
    Of values of all lengths that are hashed in their own way.
    """
    value = bytes(size)
    found = {
        content([{**ROW, "value": value[:at] + b"\x01" + value[at + 1 :]}]) for at in range(size)
    }

    assert len(found | {content([{**ROW, "value": value}])}) == size + 1


def test_two_of_a_kind_are_not_none() -> None:
    """
    Equal rows add up, where an exclusive or would lose them.
    """
    assert len({content([ROW] * count) for count in range(4)}) == 4
    assert content([]) == "0" * 16


def test_the_topic_of_the_option_counts_as_the_rows_own() -> None:
    """
    It is the same row, wherever its topic was said.
    """
    assert content([{**ROW, "topic": None}], topic="t") == content([ROW])


def test_it_is_the_same_everywhere() -> None:
    """
    A restart may run on another machine, with another version: what the ledger holds must count.
    """
    long = {**ROW, "value": bytes(range(256)), "headers": None}

    assert [content([ROW]), content([long])] == ["6edffe61ec982ea4", "89b493a3578e075b"]
