"""
Fuzzes the decoder of record batches, guided by which parts of it an input reaches.

From the root of the repository, ``python -m fuzz.fuzz_records -max_total_time=60`` runs for a
minute; the options are libFuzzer's. An input that fails is kept in a file, which as an argument
makes it run again.
"""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import atheris
from fuzz import instrumented


@dataclass(frozen=True, slots=True)
class FuzzedChoices:
    """
    Choices that libFuzzer makes and learns to make better.
    """

    data: atheris.FuzzedDataProvider

    def number(self, low: int, high: int) -> int:
        """
        Return a number of at least ``low`` and at most ``high``.
        """
        return int(self.data.ConsumeIntInRange(low, high))

    def some_bytes(self, most: int) -> bytes:
        """
        Return any bytes, at most so many.
        """
        return bytes(self.data.ConsumeBytes(self.number(0, most)))


def one_input(data: bytes) -> None:
    """
    Read one answer: good batches spoilt, or bytes that are all the fuzzer's own.
    """
    from fuzz.mutations import read_whatever, response

    choices = FuzzedChoices(atheris.FuzzedDataProvider(data))
    if choices.number(0, 3) == 0:
        read_whatever(choices.some_bytes(4096), (), choices)
        return
    records, aborted = response(choices)
    read_whatever(records, aborted, choices)


def main() -> None:
    """
    Run libFuzzer until it finds something or its time is over.
    """
    with tempfile.TemporaryDirectory() as folder:
        library = instrumented.build(Path(folder))

        def first_input(data: bytes) -> None:
            # Not before: the decoder needs libFuzzer's functions, which are here only now.
            if instrumented.NAME not in sys.modules:
                instrumented.load(library)
            one_input(data)

        # For these functions to be found, too.
        sys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL)
        atheris.Setup(sys.argv, first_input)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
