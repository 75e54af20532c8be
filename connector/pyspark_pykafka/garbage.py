"""
What Python's garbage collector looks at in Spark's workers.
"""

from __future__ import annotations

import gc
from functools import cache


@cache
def spare_loaded_code() -> None:
    """
    Keep what is alive now out of every later collection of this process.

    Spark's daemon collects after each task (``pyspark/daemon.py``), and that walks the objects of
    all loaded modules: 30 to 60 ms of CPU where records have pushed them out of the caches. At the
    start of a worker's first task nothing is garbage yet (measured), so nothing is kept for ever
    that would have been freed.
    """
    gc.freeze()
