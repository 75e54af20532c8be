"""
The checksum of record batches: the package's own function, got at without the package.
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
def test_checksum_is_that_of_the_package(data: bytes, more: bytes) -> None:
    """
    Both functions agree, also on bytes that come in two parts.
    """
    assert crc32c(memoryview(data)) == package.crc32c(data)
    assert crc32c(more, crc32c(data)) == package.crc32c(data + more)


def test_package_stays_unloaded_and_can_be_loaded_later() -> None:
    """
    In a fresh process the function works without the package, and does not stand in its way.
    """
    subprocess.run([sys.executable, "-c", ALONE], check=True, timeout=60)
