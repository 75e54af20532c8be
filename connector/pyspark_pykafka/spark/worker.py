"""
Support for tasks in Spark's Python workers: detects stopped tasks, and reduces the cost of garbage
collection.

Spark stops a task by closing the connection to its Python worker (``BasePythonRunner``). The
worker's Arrow reader accepts an end of stream without an end marker, so a stopped task would write
the rows that it has received, and report success.
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
    from collections.abc import Callable, Iterable, Iterator
    from types import FrameType

    import pyarrow as pa

#: The local property in which Spark passes the micro-batch's id to the tasks of a stream.
BATCH_PROPERTY = "streaming.sql.batchId"
NO_BATCH = -1

# Every version of Spark holds the connection in ``pyspark.worker.main(infile, outfile)``.
_MAIN, _INPUT = "main", "infile"

# The peer has closed the connection; without POLLRDHUP, poll() reports only POLLHUP and POLLERR.
_CLOSED = getattr(select, "POLLRDHUP", 0)


class TaskStoppedError(PykafkaError):
    """
    Spark has stopped the task. Nothing receives the error, but it makes the task abort its writes.
    """


def rows_until_end_of_task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """
    Yield a task's rows. Raises :class:`TaskStoppedError` once Spark has stopped the task: before
    the next batch, or at the end of the rows, which the stop may have caused.
    """
    check_not_stopped = stop_check()
    for batch in batches:
        check_not_stopped()
        yield batch
    check_not_stopped()


def stop_check() -> Callable[[], None]:
    """
    Return a function that raises :class:`TaskStoppedError` once Spark has stopped this task.
    """
    source = input_of_worker(sys._getframe())  # noqa: SLF001 (Spark does not pass the connection on)

    def check_not_stopped() -> None:
        if source is not None and _is_closed(source):
            msg = "Spark has stopped this task: another attempt has finished, or its job has failed"
            raise TaskStoppedError(msg)

    return check_not_stopped


def input_of_worker(frame: FrameType | None) -> Any:
    """
    Return the file from which the worker reads its rows; None outside of a worker.
    """
    while frame is not None:
        code = frame.f_code
        if code.co_name == _MAIN and _INPUT in code.co_varnames:
            return frame.f_locals.get(_INPUT)
        frame = frame.f_back
    return None


def _is_closed(source: Any) -> bool:
    try:
        descriptor = source.fileno()
    except UnsupportedOperation:
        # A worker without a daemon (spark.python.use.daemon) reads from a BufferedRWPair, which has
        # no file descriptor. If its task leaves a transaction open, the next batch aborts it.
        return False
    poll = select.poll()
    poll.register(descriptor, _CLOSED)
    return bool(poll.poll(0))


def micro_batch_id() -> int:
    """
    Return the id of this task's micro-batch, or -1 in a batch query.
    """
    # Imported here because few tasks need it.
    from pyspark import TaskContext

    task = TaskContext.get()
    batch = None if task is None else task.getLocalProperty(BATCH_PROPERTY)
    return NO_BATCH if batch is None else int(batch)


@cache
def freeze_loaded_modules() -> None:
    """
    Exclude all objects that exist now from later garbage collections of this process.

    Spark's daemon collects garbage after each task (``pyspark/daemon.py``), which walks the objects
    of all loaded modules: 30 to 60 ms of CPU after records have evicted them from the CPU caches.
    At the start of a worker's first task there is no garbage yet (measured), so nothing leaks.
    """
    gc.freeze()
