"""
Fuzzes the encoder of values as :mod:`fuzz.fuzz_records` fuzzes the decoder of record batches.
"""

from __future__ import annotations

import atheris
from fuzz import instrumented
from fuzz.fuzz_records import FuzzedChoices, run


def encode_input(data: bytes) -> None:
    """
    Encode an array that libFuzzer chooses.
    """
    from fuzz.encoder_mutations import encode_any

    encode_any(FuzzedChoices(atheris.FuzzedDataProvider(data)))


if __name__ == "__main__":
    run(instrumented.ENCODER, encode_input)
