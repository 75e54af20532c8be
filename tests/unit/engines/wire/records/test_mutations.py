"""
A small, repeatable share of what ``make fuzz`` does for as long as one likes.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from fuzz.mutations import read_whatever, response
from hypothesis import given, settings
from hypothesis import strategies as st
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
class RandomChoices:
    """
    Choices of a generator with a seed: many, and the same ones in each run.
    """

    random: random.Random

    def number(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def some_bytes(self, most: int) -> bytes:
        return self.random.randbytes(self.random.randint(0, most))


@dataclass(frozen=True, slots=True)
class DrawnChoices:
    """
    Choices that hypothesis makes, and makes smaller when they show a fault.
    """

    draw: Callable[[st.SearchStrategy[Any]], Any]

    def number(self, low: int, high: int) -> int:
        return int(self.draw(st.integers(low, high)))

    def some_bytes(self, most: int) -> bytes:
        return bytes(self.draw(st.binary(max_size=most)))


@settings(max_examples=100, derandomize=True)
@given(st.data())
def test_spoilt_batches(data: st.DataObject) -> None:
    """
    Whatever is changed in a batch, it is refused by name, or its rows hold together.
    """
    choices = DrawnChoices(data.draw)
    records, aborted = response(choices)
    read_whatever(records, aborted, choices)


def test_many_spoilt_batches() -> None:
    """
    The same for thousands of batches, of which enough records are read before and after the damage.
    """
    rows = 0
    for seed in range(2500):
        choices = RandomChoices(random.Random(seed))
        records, aborted = response(choices)
        found = read_whatever(records, aborted, choices)
        rows += sum(batch.num_rows for batch in found)

    assert rows > 5000


@pytest.mark.parametrize("codec", CODECS)
def test_each_flipped_bit(codec: int) -> None:
    """
    Each single bit, with a checksum that vouches for it: an error with an offset, or some rows.
    """
    headers = ((b"h", b"v"), (b"i", None))
    batch = Batch(0, 3, (Record(0, key=b"k"), Record(2, headers=headers)), codec).encode()
    refused = []
    for at in range(8 * len(batch)):
        flipped = bytearray(batch)
        flipped[at // 8] ^= 1 << at % 8
        reading = decoder()
        reading.feed(seal(bytes(flipped), length=False))
        try:
            reading.fill()
        except (MalformedBatch, OldFormat, TimestampTooLarge) as error:
            refused.append(error.offset)
    assert len(refused) > 100
    assert set(refused) <= set(range(4))
