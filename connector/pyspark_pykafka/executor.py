"""
What a task can tell of the executor that it gets its rows from.

Spark stops a task by closing the connection to its Python worker (``BasePythonRunner``), and the
worker's Arrow reader takes an end without a marker for a proper one: the task would write the rows
it has, and think that these are all.
"""

from __future__ import annotations

import os
import select
import socket
import sys
from typing import TYPE_CHECKING, Any

from pyspark_pykafka.errors import PykafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import FrameType

    import pyarrow as pa

# Where every version of Spark keeps the connection: ``pyspark.worker.main(infile, outfile)``.
_MAIN, _INPUT = "main", "infile"


class TaskStoppedError(PykafkaError):
    """
    Spark has stopped the task; nobody is left to be told, but what it has begun is to be undone.
    """


def whole(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """
    Yield a task's rows. Raises :class:`TaskStoppedError` if they ended since it was stopped.
    """
    yield from batches
    if _is_gone(_input_of(sys._getframe())):  # noqa: SLF001 (Spark hands the connection to nobody)
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
    if source is None:
        return False
    with socket.socket(fileno=os.dup(source.fileno())) as connection:
        poll = select.poll()
        poll.register(connection, select.POLLIN)
        if not poll.poll(0):
            return False
        try:
            return not connection.recv(1, socket.MSG_PEEK)
        except ConnectionError:
            return True
