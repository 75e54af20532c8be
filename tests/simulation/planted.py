"""
Faults that the connector had, put back on purpose: the simulation must find each.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.simulation.spark.connector import simulated_connector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.simulation.spark.connector import Connector

PLANTED: dict[str, Callable[[Connector], Callable[[], None]]] = {}


@contextmanager
def planted(name: str | None) -> Iterator[None]:
    """
    Put a fault into the simulated copy for the duration of a block.
    """
    if name is None:
        yield
        return
    remove = PLANTED[name](simulated_connector())
    try:
        yield
    finally:
        remove()
