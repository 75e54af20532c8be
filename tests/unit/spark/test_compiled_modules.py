"""
An installation without compiled modules says so where users look.
"""

from __future__ import annotations

import pytest
from tests.support.fresh_process import errors_of

from pyspark_pykafka.spark.compiled_modules import COMPILED, short_name

PROGRAM = """
import sys
for module in {missing!r}:
    sys.modules[module] = None

from pyspark.sql.types import BinaryType, StructField, StructType
from pyspark_pykafka import DefaultSource

schema = StructType([StructField("value", BinaryType())])
read = {{"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}}
for _ in range(2):
    {use}
"""

BATCH, STREAM = "DefaultSource(read).reader(schema)", "DefaultSource(read).streamReader(schema)"


@pytest.mark.parametrize("use", [BATCH, STREAM])
def test_a_driver_names_missing_modules_once(use: str) -> None:
    """
    The first query of a process logs one warning: the modules, their effects and a remedy.
    """
    missing = list(COMPILED)[1:3]

    (line,) = errors_of(PROGRAM.format(missing=missing, use=use), {})

    named = [module for module in COMPILED if f"{short_name(module)}: " in line]
    assert named == missing
    assert all(COMPILED[module] in line for module in missing)
    assert "install a wheel" in line


@pytest.mark.parametrize("use", [BATCH, STREAM])
def test_a_complete_installation_logs_nothing(use: str) -> None:
    """
    With all compiled modules there is no warning.
    """
    assert errors_of(PROGRAM.format(missing=[], use=use), {}) == []
