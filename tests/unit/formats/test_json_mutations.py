"""
A small, reproducible part of ``make fuzz``, for the JSON decoder.
"""

from __future__ import annotations

import random

import pytest
from fuzz.json_mutations import decode_any, texts
from tests.support.random_choices import RandomChoices


@pytest.mark.parametrize(
    "seeds", [range(1500), pytest.param(range(1500, 4000), marks=pytest.mark.soak)]
)
def test_many_mutated_texts(seeds: range) -> None:
    """
    Many random texts give rows or bad values of random types, and leave no trace in later rows.
    """
    good = 0
    for seed in seeds:
        choices = RandomChoices(random.Random(seed))
        good += decode_any(texts(choices), choices)

    assert good > len(seeds) / 2
