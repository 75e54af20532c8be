"""
What was measured, as values that go into the JSON file and come out of it again.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from bench.figures import Spread, spread, times_as_fast

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

BASE, TOP = "jvm", "ceiling"


@dataclass(frozen=True, slots=True)
class Series:
    """
    One contender's rounds; a round has the same place in every series of a measurement.

    ``cpu_seconds`` are those of the driver's JVM and all its Python processes.
    """

    seconds: tuple[float, ...]
    cpu_seconds: tuple[float, ...] = ()
    worker_peak_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Measurement:
    """
    What all contenders needed for the same thing: ``records``, or one of something.

    ``base`` is the one that the others are held against, and ``also`` are more such.
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
        Return what :meth:`to_json` was called on.
        """
        series = {
            name: Series(tuple(one["seconds"]), tuple(one["cpu_seconds"]), one["worker_peak_bytes"])
            for name, one in document["series"].items()
        }
        also = tuple(document.get("also", ()))
        return cls(**{**document, "series": series, "also": also})

    def to_json(self) -> dict[str, Any]:
        """
        Return a document of plain values.
        """
        return asdict(self)

    def speedup(self, who: str, over: str | None = None) -> Spread:
        """
        Return how many times as fast one contender was as another, the base if nobody is named.
        """
        return times_as_fast(self.series[who].seconds, self.series[over or self.base].seconds)

    def records_per_second(self, who: str) -> float:
        """
        Return the median rate.
        """
        return self.records / spread(self.series[who].seconds).middle

    def cpu_per_million(self, who: str) -> float | None:
        """
        Return the median of the CPU seconds per million records.
        """
        cpu = self.series[who].cpu_seconds
        return spread(cpu).middle / self.records * 1e6 if cpu else None

    def ratios(self) -> Iterator[tuple[str, Spread]]:
        """
        Yield each contender over the base and its like, then the contenders over the ceiling.

        1 is a draw and more is faster, whatever was measured.
        """
        for over in (self.base, *self.also, TOP):
            others = [who for who in self.series if who not in {over, self.base}]
            for who in others if over in self.series else []:
                yield f"{self.name}-{who}/{over}", self.speedup(who, over)
