"""
What Python's garbage collector walks in a worker: not all modules again after each task.
"""

from __future__ import annotations

import pytest
from tests.support.fresh_process import said

READING = """
import gc, weakref
from pyspark.sql.datasource import InputPartition
from tests.support.fetching import settings
from pyspark_pykafka.offsets import OffsetRange, TopicPartition
from pyspark_pykafka.spark.batch_reader import read_range

def read():
    wanted = InputPartition(OffsetRange(TopicPartition("t", 0), 0, 1))
    return read_range(wanted, settings("localhost:1", "wire"))

class Node:
    pass
"""


@pytest.mark.parametrize(
    ("first", "spared"), [pytest.param("read()", True, id="read"), pytest.param("", False, id="no")]
)
def test_a_read_spares_loaded_code(first: str, spared: bool) -> None:
    """
    Thousands of objects of modules are walked by every collection, unless a task has read before.
    """
    left = int(said(f"{READING}{first}\nprint(len(gc.get_objects()))"))

    assert (left < 2_000) is spared
    assert (left > 20_000) is not spared


def test_later_garbage_is_collected() -> None:
    """
    Only the first read spares anything; what comes after it is freed as ever.
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
    assert said(READING + program) == "True True"
