"""
Garbage collection in a worker: it does not walk all loaded modules after each task.
"""

from __future__ import annotations

import pytest
from tests.support.fresh_process import output_of

READING = """
import gc, weakref
from pyspark.sql.datasource import InputPartition
from tests.support.fetching import SCHEMA, settings
from pyspark_pykafka.formats.read_format import ReadFormat
from pyspark_pykafka.offsets import OffsetRange, TopicPartition
from pyspark_pykafka.spark.batch_reader import read_range

def read():
    partition = InputPartition(OffsetRange(TopicPartition("t", 0), 0, 1))
    raw = ReadFormat(SCHEMA, SCHEMA)
    return read_range(partition, settings("localhost:1", "wire"), raw)

class Node:
    pass
"""


@pytest.mark.parametrize(
    ("first", "frozen"), [pytest.param("read()", True, id="read"), pytest.param("", False, id="no")]
)
def test_first_read_freezes_loaded_modules(first: str, frozen: bool) -> None:
    """
    After a task's first read the collector no longer walks thousands of objects of modules.
    """
    tracked = int(output_of(f"{READING}{first}\nprint(len(gc.get_objects()))"))

    assert (tracked < 2_000) is frozen
    assert (tracked > 20_000) is not frozen


def test_later_garbage_is_collected() -> None:
    """
    Only the first read freezes objects; later ones are collected as usual.
    """
    program = """
read()
frozen = gc.get_freeze_count()
node = Node()
node.itself, gone = node, weakref.ref(node)
read()
del node
gc.collect()
print(gone() is None, frozen == gc.get_freeze_count())
"""
    assert output_of(READING + program) == "True True"
