"""
Reports the connector's own errors to Spark in one line, without Python's traceback.

These errors explain the problem and its solution, which 20 to 45 lines of traceback would hide.
All other errors keep their traceback.
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark_pykafka.errors import PykafkaError
from pyspark_pykafka.spark.worker import input_of_worker

if TYPE_CHECKING:
    from collections.abc import Callable

    C = TypeVar("C", bound=type[Any])

logger = logging.getLogger("pyspark_pykafka")

# PySpark reads this variable when a worker reports an error
# (``pyspark.util.handle_worker_exception``). In every Spark version the worker process ends after
# the report, so the variable hides no other error's traceback.
HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"


def reports_errors(adapter: C) -> C:
    """
    Make the public methods of a class report the connector's errors to Spark in one line.
    """
    for name, method in list(vars(adapter).items()):
        if not name.startswith("_") and inspect.isfunction(method):
            setattr(adapter, name, _reporting(method))
    return adapter


def _reporting(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*arguments: Any, **named: Any) -> Any:
        with _error_report():
            result = method(*arguments, **named)
        return _iterate(result) if isinstance(result, Iterator) else result

    return call


def _iterate(results: Iterator[Any]) -> Iterator[Any]:
    with _error_report():
        yield from results


@contextmanager
def _error_report() -> Iterator[None]:
    try:
        yield
    except PykafkaError as error:
        logger.debug("the traceback of the error that Spark gets", exc_info=True)
        error.shows_condition = True
        # Only in workers: other processes, such as a program that calls a reader, keep running.
        if input_of_worker(sys._getframe()) is not None:  # noqa: SLF001 (Spark passes nothing on)
            os.environ[HIDE_TRACEBACK] = "1"
        raise
