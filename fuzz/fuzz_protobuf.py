"""
Fuzzes the decoder of Protobuf as :mod:`fuzz.fuzz_records` fuzzes the decoder of record batches.
"""

from __future__ import annotations

import atheris
from fuzz import instrumented
from fuzz.fuzz_records import FuzzedChoices, run


def decode_input(data: bytes) -> None:
    """
    Decode records as a message that libFuzzer chooses.
    """
    from fuzz.protobuf_mutations import decode_any, decode_named, values

    choices = FuzzedChoices(atheris.FuzzedDataProvider(data))
    decode = (decode_any, decode_named)[choices.number(0, 1)]
    decode(values(choices), choices)


if __name__ == "__main__":
    run(instrumented.PROTOBUF, decode_input)
