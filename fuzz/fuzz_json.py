"""
Fuzzes the decoder of JSON as :mod:`fuzz.fuzz_records` fuzzes the decoder of record batches.
"""

from __future__ import annotations

import atheris
from fuzz import instrumented
from fuzz.fuzz_records import FuzzedChoices, run


def decode_input(data: bytes) -> None:
    """
    Decode records into a type that libFuzzer chooses: mutated texts, or arbitrary bytes.
    """
    from fuzz.json_mutations import decode_any, texts

    choices = FuzzedChoices(atheris.FuzzedDataProvider(data))
    arbitrary = choices.number(0, 1)
    decode_any([choices.some_bytes(512)] if arbitrary else texts(choices), choices)


if __name__ == "__main__":
    run(instrumented.JSON, decode_input)
