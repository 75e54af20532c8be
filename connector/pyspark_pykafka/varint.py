"""
Varints: integers with seven bits in each byte, the lowest first, as in Kafka, Avro and Protobuf.
"""

from __future__ import annotations


def unsigned_varint(number: int) -> bytes:
    """
    Return a non-negative number as a varint.
    """
    if number < 0x80:
        return bytes((number,))
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def zigzag_varint(number: int) -> bytes:
    """
    Return any number as a varint; small negative numbers are short, too.
    """
    return unsigned_varint(number << 1 if number >= 0 else ~(number << 1))
