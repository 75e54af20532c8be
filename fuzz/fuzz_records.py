"""
Fuzzes the decoder of record batches with libFuzzer, guided by code coverage.

From the root of the repository, ``python -m fuzz.fuzz_records -max_total_time=60`` runs for a
minute; the options are libFuzzer's. ``python -m fuzz.fuzz_json`` fuzzes the decoder of JSON.
A failing input is saved to a file; pass that file as an argument to run it again.
"""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import atheris
from fuzz import instrumented

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class FuzzedChoices:
    """
    Choices that libFuzzer makes from its input.
    """

    data: atheris.FuzzedDataProvider

    def number(self, minimum: int, maximum: int) -> int:
        """
        Return a number from ``minimum`` to ``maximum``.
        """
        return int(self.data.ConsumeIntInRange(minimum, maximum))

    def some_bytes(self, max_bytes: int) -> bytes:
        """
        Return at most ``max_bytes`` arbitrary bytes.
        """
        return bytes(self.data.ConsumeBytes(self.number(0, max_bytes)))


def decode_input(data: bytes) -> None:
    """
    Decode one response: valid batches with mutations, or arbitrary bytes.
    """
    from fuzz.mutations import decode_mutated, response

    choices = FuzzedChoices(atheris.FuzzedDataProvider(data))
    if choices.number(0, 3) == 0:
        decode_mutated(choices.some_bytes(4096), (), choices)
        return
    records, aborted = response(choices)
    decode_mutated(records, aborted, choices)


def run(name: str, decode: Callable[[bytes], None]) -> None:
    """
    Run libFuzzer on a decoder until it finds a failure or its time is over.
    """
    with tempfile.TemporaryDirectory() as folder:
        library = instrumented.build(name, Path(folder))

        def load_and_decode(data: bytes) -> None:
            # Loaded late: the decoder needs libFuzzer's functions, which Setup() has loaded.
            if name not in sys.modules:
                instrumented.load(name, library)
            decode(data)

        # Makes these functions visible to the decoder.
        sys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL)
        atheris.Setup(sys.argv, load_and_decode)
        atheris.Fuzz()


if __name__ == "__main__":
    run(instrumented.RECORDS, decode_input)
