"""
The encoding of numbers as varints.
"""

from __future__ import annotations

import pytest

from pyspark_pykafka.varint import unsigned_varint, zigzag_varint


@pytest.mark.parametrize(
    ("number", "encoded"),
    [(0, "00"), (1, "01"), (127, "7f"), (128, "8001"), (300, "ac02"), (2**64 - 1, "ff" * 9 + "01")],
)
def test_unsigned_varint_has_seven_bits_a_byte(number: int, encoded: str) -> None:
    """
    The lowest bits come first, and each byte but the last has its highest bit set.
    """
    assert unsigned_varint(number) == bytes.fromhex(encoded)


@pytest.mark.parametrize(
    ("number", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (-64, "7f"),
        (64, "8001"),
        (2**63 - 1, "fe" + "ff" * 8 + "01"),
        (-(2**63), "ff" * 9 + "01"),
    ],
)
def test_zigzag_varint_alternates_signs(number: int, encoded: str) -> None:
    """
    The examples of Avro's specification, and the limits of 64 bits.
    """
    assert zigzag_varint(number) == bytes.fromhex(encoded)
