"""
Makes the records: text like JSON documents, the same in every run, which compresses like real data.
"""

from __future__ import annotations

import random

SEED = 20_260_101
WORDS = 1200
#: Samples together take up to so many bytes: more than a record batch holds, so that compression
#: finds words again, but not whole records.
SAMPLE_BYTES = 2_000_000
#: Keys of records to write: prime, and none of the numbers of samples, so that pairs differ.
KEYS = 1009
# Prime, so that every sample comes to every partition.
PRIMES = (4999, 1999, 997, 499, 199)


def samples(size: int) -> list[bytes]:
    """
    Return different values of exactly so many bytes.
    """
    chance = random.Random(SEED)  # noqa: S311 (data must be the same again)
    words = [_word(chance) for _ in range(WORDS)]
    count = next((prime for prime in PRIMES if prime * size <= SAMPLE_BYTES), PRIMES[-1])
    return [_document(chance, words, size) for _ in range(count)]


def keys() -> list[bytes]:
    """
    Return different keys of eight bytes.
    """
    return [b"k-%06d" % number for number in range(KEYS)]


def _word(chance: random.Random) -> str:
    letters = chance.choices("etaoinshrdlucmfwypvbgkqjxz", k=chance.randint(2, 9))
    return "".join(letters)


def _document(chance: random.Random, words: list[str], size: int) -> bytes:
    text = (
        f'{{"id":{chance.randrange(10**9)},"user":"u{chance.randrange(10**6)}",'
        f'"amount":{chance.random() * 1000:.2f},"note":"'
    )
    while len(text) < size:
        text += chance.choice(words) + " "
    return (text[: size - 2] + '"}').encode()
