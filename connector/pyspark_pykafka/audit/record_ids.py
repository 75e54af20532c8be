"""
Record ids for whole offset ranges: the upper bits of Spark's ``xxhash64``.

The hash of each column is the seed for the hash of the next column. So topic and partition are
hashed once for a range, and only the offsets one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pyspark_pykafka.audit.report import Checksum

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from pyspark_pykafka.offsets import TopicPartition

    Array = npt.NDArray[np.uint64]

#: The number of hash bits that an id leaves out. Ids have 44 bits, and are positive or negative, so
#: they largely cancel out: the sum of 10^11 ids is far from overflowing 64 bits.
SHIFT = 20

#: The number of offsets hashed at once, so that the arrays fit into the CPU cache.
BLOCK = 1 << 15

_SEED = 42
_MASK = 2**64 - 1
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def checksum_of_range(
    tp: TopicPartition, start: int, end: int, *, include_topic: bool = True
) -> Checksum:
    """
    Return the checksum of one record at each offset of ``[start, end)``.

    ``include_topic``: whether the topic's name is part of an id.
    """
    seed = _seed(tp, include_topic=include_topic)
    block = np.arange(min(BLOCK, max(end - start, 0)), dtype=np.uint64)
    starts = range(start, end, BLOCK)
    total = sum(_sum_of_ids(block[: end - first] + np.uint64(first), seed) for first in starts)
    return Checksum(max(end - start, 0), total)


def checksum_of_offsets(
    tp: TopicPartition, offsets: npt.NDArray[np.int64], *, include_topic: bool = True
) -> Checksum:
    """
    Return the checksum of one record at each of these offsets.
    """
    seed = _seed(tp, include_topic=include_topic)
    starts = range(0, len(offsets), BLOCK)
    blocks = (offsets[start : start + BLOCK].astype(np.uint64) for start in starts)
    return Checksum(len(offsets), sum(_sum_of_ids(block, seed) for block in blocks))


def _seed(tp: TopicPartition, *, include_topic: bool) -> int:
    return _hash_int(tp.partition, _hash_text(tp.topic.encode()) if include_topic else _SEED)


def _sum_of_ids(values: Array, seed: int) -> int:
    """
    Return the sum of the ids: XXH64 of 8 bytes each. Overwrites ``values``.

    Integer arithmetic on numpy arrays is modulo 2^64.
    """
    values *= np.uint64(_P2)
    _rotate_all(values, 31)
    values *= np.uint64(_P1)
    values ^= np.uint64((seed + _P5 + 8) & _MASK)
    _rotate_all(values, 27)
    values *= np.uint64(_P1)
    values += np.uint64(_P4)
    values ^= values >> np.uint64(33)
    values *= np.uint64(_P2)
    values ^= values >> np.uint64(29)
    values *= np.uint64(_P3)
    values ^= values >> np.uint64(32)
    return int((values.view(np.int64) >> np.int64(SHIFT)).sum())


def _rotate_all(values: Array, bits: int) -> None:
    carried = values >> np.uint64(64 - bits)
    values <<= np.uint64(bits)
    values |= carried


def _hash_int(value: int, seed: int) -> int:
    mixed = (seed + _P5 + 4) & _MASK
    mixed ^= (value * _P1) & _MASK
    return _avalanche(_rotate(mixed, 23) * _P2 + _P3)


def _hash_text(data: bytes) -> int:
    """
    Return the XXH64 of bytes: stripes of 32 bytes, then words of 8 and 4 bytes, then single bytes.
    """
    stripes = len(data) // 32 * 32
    words = stripes + len(data[stripes:]) // 8 * 8
    mixed = _stripes(data[:stripes]) if stripes else _SEED + _P5
    mixed += len(data)
    for word in _words(data[stripes:words]):
        mixed = _rotate(mixed ^ _round(0, word), 27) * _P1 + _P4
    rest = data[words:]
    if len(rest) >= 4:
        mixed ^= int.from_bytes(rest[:4], "little") * _P1
        mixed = _rotate(mixed, 23) * _P2 + _P3
        rest = rest[4:]
    for byte in rest:
        mixed = _rotate(mixed ^ (byte * _P5), 11) * _P1
    return _avalanche(mixed)


def _stripes(data: bytes) -> int:
    lanes = [_SEED + _P1 + _P2, _SEED + _P2, _SEED, _SEED - _P1]
    for index, word in enumerate(_words(data)):
        lanes[index % 4] = _round(lanes[index % 4], word)
    mixed = sum(map(_rotate, lanes, (1, 7, 12, 18)))
    for lane in lanes:
        mixed = (mixed ^ _round(0, lane)) * _P1 + _P4
        mixed &= _MASK
    return mixed


def _words(data: bytes) -> Iterator[int]:
    return (int.from_bytes(data[start : start + 8], "little") for start in range(0, len(data), 8))


def _round(lane: int, word: int) -> int:
    return (_rotate(lane + word * _P2, 31) * _P1) & _MASK


def _rotate(value: int, bits: int) -> int:
    value &= _MASK
    return ((value << bits) | (value >> (64 - bits))) & _MASK


def _avalanche(mixed: int) -> int:
    mixed &= _MASK
    mixed = ((mixed ^ (mixed >> 33)) * _P2) & _MASK
    mixed = ((mixed ^ (mixed >> 29)) * _P3) & _MASK
    return mixed ^ (mixed >> 32)
