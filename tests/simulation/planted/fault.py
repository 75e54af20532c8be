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
    A planted fault: the workload that shows it, the anomaly, and the replacements that cause it.

    Some faults show another anomaly instead, depending on the options of the history.
    """

    workload: str
    anomaly: str
    plant: Callable[[Connector], list[Any]]
    other_anomaly: str | None = None

    def explains(self, failure: str) -> bool:
        """
        Return whether a failed history shows an anomaly of this fault.
        """
        return self.anomaly in failure or bool(self.other_anomaly and self.other_anomaly in failure)
