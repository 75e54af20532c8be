"""
Query shapes: how a plan divides the rows of a micro-batch among the writing tasks.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from tests.simulation.spark.endpoints import Row

    Rows = list[list[Row]]


@dataclass(frozen=True, slots=True)
class Shape:
    """
    A query's shape; ``exchange`` is None if the tasks that read also write.
    """

    name: str
    #: From the rows of each input partition to those of each writing task.
    exchange: Callable[[Rows, Random], Rows] | None = None


def _round_robin(count: int) -> Callable[[Rows, Random], Rows]:
    def exchange(inputs: Rows, _: Random) -> Rows:
        # Spark distributes an input partition's rows to the outputs in turn; the first output
        # varies.
        outputs: Rows = [[] for _ in range(count)]
        for number, rows in enumerate(inputs):
            for index, row in enumerate(rows):
                outputs[(number + index) % count].append(row)
        return outputs

    return exchange


def _unsorted(count: int) -> Callable[[Rows, Random], Rows]:
    def exchange(inputs: Rows, draw: Random) -> Rows:
        # spark.sql.execution.sortBeforeRepartition=false: in a replay each output has as many rows
        # as before, but other ones.
        rows = [row for part in draw.sample(inputs, len(inputs)) for row in part]
        return [rows[number::count] for number in range(count)]

    return exchange


def _by_key(count: int) -> Callable[[Rows, Random], Rows]:
    def exchange(inputs: Rows, draw: Random) -> Rows:
        # Blocks of a shuffle arrive in any order.
        outputs: Rows = [[] for _ in range(count)]
        for rows in draw.sample(inputs, len(inputs)):
            for row in rows:
                outputs[zlib.crc32(row.key or row.value) % count].append(row)
        return outputs

    return exchange


def _coalesce(inputs: Rows, _: Random) -> Rows:
    return [[row for rows in inputs for row in rows]]


def _random(count: int) -> Callable[[Rows, Random], Rows]:
    def exchange(inputs: Rows, draw: Random) -> Rows:
        outputs: Rows = [[] for _ in range(count)]
        for rows in inputs:
            for row in rows:
                draw.choice(outputs).append(row)
        return outputs

    return exchange


DIRECT = Shape("direct")


def shapes() -> Sequence[Shape]:
    """
    Return all shapes.
    """
    return (
        DIRECT,
        Shape("repartition(4)", _round_robin(4)),
        Shape("repartition(2)", _round_robin(2)),
        Shape("repartition(2), unsorted", _unsorted(2)),
        Shape("repartition by key", _by_key(3)),
        Shape("coalesce(1)", _coalesce),
        Shape("rand()", _random(3)),
    )
