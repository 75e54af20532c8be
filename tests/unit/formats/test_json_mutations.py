"""
A small, reproducible part of ``make fuzz``, for the decoder of JSON.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from fuzz.json_mutations import decode_any, texts


@dataclass(frozen=True, slots=True)
class RandomChoices:
    """
    Choices of a seeded generator: fast, and the same in each run.
    """

    random: random.Random

    def number(self, minimum: int, maximum: int) -> int:
        return self.random.randint(minimum, maximum)

    def some_bytes(self, max_bytes: int) -> bytes:
        return self.random.randbytes(self.random.randint(0, max_bytes))


def test_many_mutated_texts() -> None:
    """
    Thousands of texts are good or bad for thousands of types, and leave no trace in what follows.
    """
    good = 0
    for seed in range(4000):
        choices = RandomChoices(random.Random(seed))
        good += decode_any(texts(choices), choices)

    assert good > 2000
