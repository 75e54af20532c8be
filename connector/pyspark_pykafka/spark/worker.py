"""
What a task can tell of the executor that it gets its rows from.

Spark stops a task by closing the connection to its Python worker (``BasePythonRunner``), and the
worker's Arrow reader takes an end without a marker for a proper one: the task would write the rows
it has, and think that these are all.
"""

from __future__ import annotations

import gc
import select
import sys
from functools import cache
from io import UnsupportedOperation
from typing import TYPE_CHECKING, Any

from pyspark_pykafka.errors import PykafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import FrameType

    import pyarrow as pa

# Where every version of Spark keeps the connection: ``pyspark.worker.main(infile, outfile)``.
_MAIN, _INPUT = "main", "infile"

# That the other end is closed; where there is no word for it, a connection that is down says so.
_CLOSED = getattr(select, "POLLRDHUP", 0)


class TaskStoppedError(PykafkaError):
    """
    Spark has stopped the task; nobody is left to be told, but what it has begun is to be undone.
    """


def rows_until_end_of_task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """
    Yield a task's rows. Raises :class:`TaskStoppedError` if they ended because it was stopped.
    """
    yield from batches
    source = _input_of(sys._getframe())  # noqa: SLF001 (Spark hands the connection to nobody)
    if source is not None and _is_gone(source):
        msg = "Spark has stopped this task: it lost against another attempt, or its job has failed"
        raise TaskStoppedError(msg)


def _input_of(frame: FrameType | None) -> Any:
    """
    Return the file that the worker reads its rows from, or None outside of a worker.
    """
    while frame is not None:
        code = frame.f_code
        if code.co_name == _MAIN and _INPUT in code.co_varnames:
            return frame.f_locals.get(_INPUT)
        frame = frame.f_back
    return None


def _is_gone(source: Any) -> bool:
    try:
        number = source.fileno()
    except UnsupportedOperation:
        # A worker without a daemon (spark.python.use.daemon) reads from a pair of buffers, which
        # has none; what its task leaves open is aborted with the next batch.
        return False
    poll = select.poll()
    poll.register(number, _CLOSED)
    return bool(poll.poll(0))


@cache
def freeze_loaded_modules() -> None:
    """
    Keep what is alive now out of every later collection of this process.

    Spark's daemon collects after each task (``pyspark/daemon.py``), and that walks the objects of
    all loaded modules: 30 to 60 ms of CPU where records have pushed them out of the caches. At the
    start of a worker's first task nothing is garbage yet (measured), so nothing is kept for ever
    that would have been freed.
    """
    gc.freeze()
