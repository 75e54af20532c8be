"""
Former and possible faults of the connector, planted on purpose: the simulation must find each.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from tests.simulation.planted import committing, reading, recording, writing
from tests.simulation.spark.connector import simulated_connector

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.planted.fault import Fault

PLANTED: dict[str, Fault] = {
    **reading.FAULTS,
    **writing.FAULTS,
    **committing.FAULTS,
    **recording.FAULTS,
}


@contextmanager
def planted(name: str | None) -> Iterator[None]:
    """
    Put a fault into the simulated copy of the connector for the duration of a block.
    """
    with ExitStack() as stack:
        if name is not None:
            for replacement in PLANTED[name].plant(simulated_connector()):
                stack.enter_context(replacement)
        yield
