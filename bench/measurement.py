"""
Measurements, and their form in the JSON file.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from bench.figures import Spread, paired_speedup, spread

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

BASE, TOP = "jvm", "ceiling"
#: The fact with the names of contenders that cannot run on this machine.
LEFT_OUT = "left out"


@dataclass(frozen=True, slots=True)
class Series:
    """
    The rounds of one contender. The n-th values of all series come from the same round.

    ``cpu_seconds`` is the CPU time of the driver's JVM and all its Python processes.
    """

    seconds: tuple[float, ...]
    cpu_seconds: tuple[float, ...] = ()
    worker_peak_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Measurement:
    """
    The times of all contenders for the same work: ``records``, or one unit of something else.

    Every other contender is compared with ``base``, and with the contenders in ``also``.
    """

    name: str
    kind: str
    series: Mapping[str, Series]
    records: int = 1
    facts: Mapping[str, Any] = field(default_factory=dict)
    base: str = BASE
    also: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Measurement:
        """
        Return the measurement of a document from :meth:`to_json`.
        """
        series = {
            name: Series(
                tuple(entry["seconds"]), tuple(entry["cpu_seconds"]), entry["worker_peak_bytes"]
            )
            for name, entry in document["series"].items()
        }
        also = tuple(document.get("also", ()))
        return cls(**{**document, "series": series, "also": also})

    def to_json(self) -> dict[str, Any]:
        """
        Return a JSON-compatible document.
        """
        return asdict(self)

    def speedup(self, name: str, over: str | None = None) -> Spread:
        """
        Return how many times faster a contender was than another, by default the base.
        """
        return paired_speedup(self.series[name].seconds, self.series[over or self.base].seconds)

    def records_per_second(self, name: str) -> float:
        """
        Return the median rate in records per second.
        """
        return self.records / spread(self.series[name].seconds).median

    def cpu_per_million(self, name: str) -> float | None:
        """
        Return the median of CPU seconds per million records.
        """
        cpu = self.series[name].cpu_seconds
        return spread(cpu).median / self.records * 1e6 if cpu else None

    def ratios(self) -> Iterator[tuple[str, Spread]]:
        """
        Yield the speedup of each contender over the bases and over the ceiling.

        1 means equally fast, and more means faster, for every kind of measurement.
        """
        for reference in (self.base, *self.also, TOP):
            if reference not in self.series:
                continue
            for name in self.series:
                if name not in {reference, self.base}:
                    yield f"{self.name}-{name}/{reference}", self.speedup(name, reference)
