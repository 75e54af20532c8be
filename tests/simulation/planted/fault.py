"""
A known fault of the connector, reintroduced on purpose.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.spark.connector import Connector


@dataclass(frozen=True, slots=True)
class Fault:
    """
    A planted fault: the workload that shows it, the anomaly, and the replacements that make it.
    """

    workload: str
    anomaly: str
    plant: Callable[[Connector], list[Any]]
