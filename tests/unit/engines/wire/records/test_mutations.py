"""
A small, reproducible part of ``make fuzz``.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from fuzz.mutations import decode_mutated, response
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.random_choices import RandomChoices
from tests.support.record_batches import CODECS, Batch, Record, seal
from tests.support.record_reading import decoder

from pyspark_pykafka.engines.wire.records._decoder import (
    MalformedBatch,
    OldFormat,
    TimestampTooLarge,
)

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class DrawnChoices:
    """
    Choices that hypothesis draws, and shrinks when the test fails.
    """

    draw: Callable[[st.SearchStrategy[Any]], Any]

    def number(self, minimum: int, maximum: int) -> int:
        return int(self.draw(st.integers(minimum, maximum)))

    def some_bytes(self, max_bytes: int) -> bytes:
        return bytes(self.draw(st.binary(max_size=max_bytes)))


@settings(max_examples=100, derandomize=True)
@given(st.data())
def test_mutated_batches(data: st.DataObject) -> None:
    """
    A mutated batch raises one of three errors, or gives valid rows.
    """
    choices = DrawnChoices(data.draw)
    records, aborted = response(choices)
    decode_mutated(records, aborted, choices)


def test_many_mutated_batches() -> None:
    """
    Thousands of mutated batches give valid rows or one of the errors, and over 5,000 rows in all.
    """
    rows = 0
    for seed in range(2500):
        choices = RandomChoices(random.Random(seed))
        records, aborted = response(choices)
        decoded = decode_mutated(records, aborted, choices)
        rows += sum(batch.num_rows for batch in decoded)

    assert rows > 5000


@pytest.mark.parametrize("codec", CODECS)
def test_any_flipped_bit(codec: int) -> None:
    """
    Any flipped bit, with a corrected checksum, raises an error with an offset or gives rows.
    """
    headers = ((b"h", b"v"), (b"i", None))
    batch = Batch(0, 3, (Record(0, key=b"k"), Record(2, headers=headers)), codec).encode()
    error_offsets = []
    for bit in range(8 * len(batch)):
        flipped = bytearray(batch)
        flipped[bit // 8] ^= 1 << bit % 8
        record_decoder = decoder()
        record_decoder.feed(seal(bytes(flipped), length=False))
        try:
            record_decoder.fill()
        except (MalformedBatch, OldFormat, TimestampTooLarge) as error:
            error_offsets.append(error.offset)
    assert len(error_offsets) > 100
    assert set(error_offsets) <= set(range(4))
