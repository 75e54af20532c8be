"""
Keeps measurements in a JSON file, which is rewritten after each measurement so that none is lost.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.measurement import Measurement

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER = Path(__file__).parent / "results"


@dataclass(slots=True)
class Results:
    """
    Measurements with their environment and settings.

    ``memory`` has the peak in bytes of each contender that read ``memory_total`` bytes.
    """

    name: str
    about: Mapping[str, Any]
    measurements: list[Measurement] = field(default_factory=list)
    memory: Mapping[str, int | None] = field(default_factory=dict)
    memory_total: int = 0

    @property
    def path(self) -> Path:
        """
        The path of the JSON file; charts are written beside it.
        """
        return FOLDER / f"{self.name}.json"

    def add(self, measurement: Measurement) -> None:
        """
        Add a measurement and save the file.
        """
        self.measurements.append(measurement)
        self.save()

    def save(self) -> None:
        """
        Write the file.
        """
        document = {
            "name": self.name,
            **self.about,
            "measurements": [measurement.to_json() for measurement in self.measurements],
            "ratios": {
                name: {
                    "median": round(ratio.median, 3),
                    "min": round(ratio.min, 3),
                    "max": round(ratio.max, 3),
                }
                for measurement in self.measurements
                for name, ratio in measurement.ratios()
            },
            "memory": {"total_bytes": self.memory_total, "worker_peak_bytes": self.memory},
        }
        FOLDER.mkdir(exist_ok=True)
        self.path.write_text(json.dumps(document, indent=1) + "\n")


def load(path: Path) -> Results:
    """
    Return the results of a file.
    """
    document = json.loads(path.read_text())
    measurements = [Measurement.from_json(entry) for entry in document.pop("measurements")]
    memory = document.pop("memory")
    document.pop("ratios")
    name = document.pop("name")
    return Results(name, document, measurements, memory["worker_peak_bytes"], memory["total_bytes"])
