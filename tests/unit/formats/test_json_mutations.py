"""
A small, reproducible part of ``make fuzz``, for the JSON decoder.
"""

from __future__ import annotations

import random

from fuzz.json_mutations import decode_any, texts
from tests.support.random_choices import RandomChoices


def test_many_mutated_texts() -> None:
    """
    Thousands of random texts give rows or bad values of random types, and leave no trace in later
    rows.
    """
    good = 0
    for seed in range(4000):
        choices = RandomChoices(random.Random(seed))
        good += decode_any(texts(choices), choices)

    assert good > 2000
