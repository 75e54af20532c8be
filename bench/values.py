"""
Generates the values of records: JSON-like text that compresses like real data, always the same.
"""

from __future__ import annotations

import random

SEED = 20_260_101
WORDS = 1200
#: The maximum size of all samples together: larger than a record batch, so that compression finds
#: repeated words, but no repeated records.
SAMPLE_BYTES = 2_000_000
#: The number of different keys: a prime, and not the number of samples, so that pairs differ.
KEYS = 1009
# Numbers of samples: primes, so that every sample goes to every partition.
PRIMES = (4999, 1999, 997, 499, 199)


def samples(size: int) -> list[bytes]:
    """
    Return different values of exactly ``size`` bytes.
    """
    generator = random.Random(SEED)  # noqa: S311 (data must be reproducible)
    words = [_word(generator) for _ in range(WORDS)]
    count = next((prime for prime in PRIMES if prime * size <= SAMPLE_BYTES), PRIMES[-1])
    return [_document(generator, words, size) for _ in range(count)]


def keys() -> list[bytes]:
    """
    Return different keys of eight bytes.
    """
    return [b"k-%06d" % number for number in range(KEYS)]


def _word(generator: random.Random) -> str:
    letters = generator.choices("etaoinshrdlucmfwypvbgkqjxz", k=generator.randint(2, 9))
    return "".join(letters)


def _document(generator: random.Random, words: list[str], size: int) -> bytes:
    text = (
        f'{{"id":{generator.randrange(10**9)},"user":"u{generator.randrange(10**6)}",'
        f'"amount":{generator.random() * 1000:.2f},"note":"'
    )
    while len(text) < size:
        text += generator.choice(words) + " "
    return (text[: size - 2] + '"}').encode()
