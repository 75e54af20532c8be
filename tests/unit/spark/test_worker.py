"""
A stopped task is distinguished from one that has received all its rows.
"""

from __future__ import annotations

import socket
from typing import IO, TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.support.listening import listen

from pyspark_pykafka.spark.worker import TaskStoppedError, rows_until_end_of_task

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from io import BufferedRWPair

ROWS = [pa.RecordBatch.from_pydict({"value": [b"a", b"b"]})]
#: The executor's bytes after the last row.
MORE = b"\xff\xff\xff\xfc"


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, IO[bytes]]]:
    """
    Return the executor's socket, and the worker's file of the other end.
    """
    executor, worker = socket.socketpair()
    with executor, worker, worker.makefile("rb") as infile:
        yield executor, infile


def main(
    infile: IO[bytes] | BufferedRWPair, batches: Iterable[pa.RecordBatch] = ROWS
) -> list[pa.RecordBatch]:
    """
    Stand in for ``pyspark.worker.main``, whose local ``infile`` is the connection.
    """

    def write() -> list[pa.RecordBatch]:
        infile.readline()
        return list(rows_until_end_of_task(iter(batches)))

    return write()


def test_all_rows(ends: tuple[socket.socket, IO[bytes]]) -> None:
    """
    While the executor keeps the connection, all rows have arrived, with or without more bytes.
    """
    executor, infile = ends
    executor.sendall(b"rows\n")
    assert main(infile) == ROWS

    executor.sendall(MORE)
    executor.sendall(MORE + b"\n")
    assert main(infile) == ROWS


@pytest.mark.parametrize("unread", [b"", MORE * 20_000], ids=["nothing", "more"])
def test_stopped_task(ends: tuple[socket.socket, IO[bytes]], unread: bytes) -> None:
    """
    If the executor has closed the connection, the rows are incomplete.
    """
    executor, infile = ends
    executor.sendall(b"rows\n" + unread)
    executor.close()
    with pytest.raises(TaskStoppedError, match="Spark has stopped this task"):
        main(infile)


def test_rows_of_a_stopped_task_are_not_written(ends: tuple[socket.socket, IO[bytes]]) -> None:
    """
    A stopped task ends before it writes the rows that are still in the connection's buffers, which
    may take long: its transaction hides later records until it is aborted.
    """
    executor, infile = ends
    executor.sendall(b"rows\n")
    received = []

    def batches() -> Iterator[pa.RecordBatch]:
        yield from ROWS
        executor.close()
        for number in range(3):
            received.append(number)
            yield from ROWS

    with pytest.raises(TaskStoppedError):
        main(infile, batches())
    assert received == [0]


def test_reset_connection() -> None:
    """
    A connection that is closed before the worker's data are read is reset, and stops the task.
    """
    with listen() as server:
        worker = socket.create_connection(server.getsockname())
        executor, _ = server.accept()
    with worker, worker.makefile("rb") as infile:
        worker.sendall(b"unread")
        executor.recv(1, socket.MSG_PEEK)
        executor.sendall(b"rows\n")
        executor.close()
        with pytest.raises(TaskStoppedError):
            main(infile)


def test_worker_without_a_daemon() -> None:
    """
    A worker without a daemon reads from a file without a descriptor: the check is skipped.
    """
    executor, worker = socket.socketpair()
    with executor, worker, worker.makefile("rwb") as infile:
        executor.sendall(b"rows\n")
        assert main(infile) == ROWS


def test_outside_a_worker() -> None:
    """
    Without a worker's connection all rows are yielded.
    """
    assert list(rows_until_end_of_task(iter(ROWS))) == ROWS
