"""
A small, reproducible part of ``make fuzz``, for the encoders of values.
"""

from __future__ import annotations

import random

import pytest
from fuzz.encoder_mutations import encode_any
from tests.support.random_choices import RandomChoices


@pytest.mark.parametrize(
    "seeds", [range(1000), pytest.param(range(1000, 3000), marks=pytest.mark.soak)]
)
def test_many_arrays(seeds: range) -> None:
    """
    Many arrays with arbitrary content are encoded in each format, or end in an error that names the
    field.
    """
    good = sum(encode_any(RandomChoices(random.Random(seed))) for seed in seeds)

    assert good > len(seeds) / 2
