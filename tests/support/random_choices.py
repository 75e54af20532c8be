"""
The choices of a fuzzer, made by a seeded generator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random


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
