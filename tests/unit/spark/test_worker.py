"""
A task whose rows end since Spark has stopped it: told from one that has all of them.
"""

from __future__ import annotations

import socket
from typing import IO, TYPE_CHECKING

import pyarrow as pa
import pytest

from pyspark_pykafka.spark.worker import TaskStoppedError, rows_until_end_of_task

if TYPE_CHECKING:
    from collections.abc import Iterator

ROWS = [pa.RecordBatch.from_pydict({"value": [b"a", b"b"]})]
#: What the executor says behind the last row.
MORE = b"\xff\xff\xff\xfc"


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, IO[bytes]]]:
    """
    Return the executor's end of a connection, and the file that a worker reads the other from.
    """
    executor, worker = socket.socketpair()
    with executor, worker, worker.makefile("rb") as infile:
        yield executor, infile


def main(infile: IO[bytes]) -> list[pa.RecordBatch]:
    """
    Stand for the worker's function of this name, in which Spark keeps the connection.
    """

    def write() -> list[pa.RecordBatch]:
        infile.readline()
        return list(rows_until_end_of_task(iter(ROWS)))

    return write()


def test_all_rows(ends: tuple[socket.socket, IO[bytes]]) -> None:
    """
    The executor waits for the answer: all rows are there, whether it has said more or not.
    """
    executor, infile = ends
    executor.sendall(b"rows\n")
    assert main(infile) == ROWS

    executor.sendall(MORE)
    executor.sendall(MORE + b"\n")
    assert main(infile) == ROWS


@pytest.mark.parametrize("unread", [b"", MORE * 20_000], ids=["nothing", "more"])
def test_a_stopped_task(ends: tuple[socket.socket, IO[bytes]], unread: bytes) -> None:
    """
    The executor has closed the connection: what came is not all.
    """
    executor, infile = ends
    executor.sendall(b"rows\n" + unread)
    executor.close()
    with pytest.raises(TaskStoppedError, match="Spark has stopped this task"):
        main(infile)


def test_a_connection_that_was_reset() -> None:
    """
    The executor has closed it without having read what the worker has sent.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        worker = socket.create_connection(server.getsockname())
        executor, _ = server.accept()
    with worker, worker.makefile("rb") as infile:
        worker.sendall(b"unread")
        executor.recv(1, socket.MSG_PEEK)
        executor.sendall(b"rows\n")
        executor.close()
        with pytest.raises(TaskStoppedError):
            main(infile)


def test_a_worker_without_a_daemon() -> None:
    """
    It reads from a file that does not tell its number, and nothing is known of the executor.
    """
    executor, worker = socket.socketpair()
    with executor, worker, worker.makefile("rwb") as infile:
        executor.sendall(b"rows\n")
        assert main(infile) == ROWS


def test_outside_of_a_worker() -> None:
    """
    There is no connection to look at.
    """
    assert list(rows_until_end_of_task(iter(ROWS))) == ROWS
