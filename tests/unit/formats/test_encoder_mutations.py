"""
A small, reproducible part of ``make fuzz``, for the encoders of values.
"""

from __future__ import annotations

import random

from fuzz.encoder_mutations import encode_any
from tests.support.random_choices import RandomChoices


def test_many_arrays() -> None:
    """
    Thousands of arrays with arbitrary content are encoded in each format, or end in an error that
    names the field.
    """
    good = sum(encode_any(RandomChoices(random.Random(seed))) for seed in range(3000))

    assert good > 1500
