"""
CRC-32C of record batches: the function of the package crc32c, loaded without the package.
"""

from __future__ import annotations

import subprocess
import sys

import crc32c as package
from hypothesis import given
from hypothesis import strategies as st

from pyspark_pykafka.engines.wire.records.checksum import crc32c

ALONE = """
import sys
from pyspark_pykafka.engines.wire.records.checksum import crc32c

assert crc32c(b"123456789") == 0xE3069283
assert "crc32c" not in sys.modules
import crc32c as package
assert package.crc32c(b"123456789") == 0xE3069283
"""


@given(st.binary(max_size=5000), st.binary(max_size=100))
def test_checksum_equals_that_of_the_package(data: bytes, following: bytes) -> None:
    """
    Both functions agree, also on bytes in two parts.
    """
    assert crc32c(memoryview(data)) == package.crc32c(data)
    assert crc32c(following, crc32c(data)) == package.crc32c(data + following)


def test_package_is_not_imported() -> None:
    """
    In a fresh process, the function works without the package, which can still be imported later.
    """
    subprocess.run([sys.executable, "-c", ALONE], check=True, timeout=60)
