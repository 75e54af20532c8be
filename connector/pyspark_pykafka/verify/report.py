"""
The report of a run as figures, text and JSON, and its exit code.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark_pykafka.verify.checker import Verdict

CLEAN, ANOMALY, VOID = "clean", "anomaly", "void"
EXIT_CODES = {CLEAN: 0, ANOMALY: 1, VOID: 2}

#: Maximum number of examples shown for each anomaly.
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Report:
    """
    The result of a run. It is void if no record was acknowledged, or if none was read and none is
    lost.
    """

    guarantee: str
    written: int
    acknowledged: int
    aborted: int
    unknown: int
    read: int
    verdict: Verdict
    restarts: int
    longest_pause: float
    max_lag: int
    strikes: int = 0
    error: str | None = None
    kept: tuple[str, ...] = field(default=())

    @property
    def outcome(self) -> str:
        """
        The verdict: CLEAN, ANOMALY or VOID.
        """
        has_lost = "lost" in self.verdict.anomalies
        if not self.acknowledged or (not self.read and not has_lost):
            return VOID
        return CLEAN if self.verdict.is_clean else ANOMALY

    @property
    def exit_code(self) -> int:
        """
        The exit code of the command.
        """
        return EXIT_CODES[self.outcome]

    def figures(self) -> dict[str, int | float]:
        """
        Return all figures by name, in the order in which they are shown.
        """
        anomalies = self.verdict.anomalies
        counts = {"duplicates": self.verdict.repeats}
        for name, kind in _ANOMALIES.items():
            counts[name] = len(anomalies.get(kind, ()))
        return {
            "written": self.written,
            "acknowledged": self.acknowledged,
            "aborted": self.aborted,
            "unknown outcome": self.unknown,
            "read": self.read,
            **counts,
            "restarts of the query": self.restarts,
            "longest pause (s)": round(self.longest_pause, 1),
            "maximum lag": self.max_lag,
            "strikes of the nemesis": self.strikes,
        }

    def lines(self) -> list[str]:
        """
        Return the report as lines of text; the last one is the verdict.
        """
        figures = self.figures()
        width = max(map(len, figures))
        lines = [f"{name:<{width}}  {value:>8}" for name, value in figures.items()]
        for kind, items in self.verdict.anomalies.items():
            places = ", ".join(f"partition {item[1]} record {item[2]}" for item in items[:_SHOWN])
            lines.append(f"{kind}: {places}{', ...' if len(items) > _SHOWN else ''}")
        if self.error is not None:
            lines.append(f"the query ended: {self.error}")
        return [*lines, f"verdict: {self.outcome} ({self._meaning()})"]

    def to_json(self) -> dict[str, Any]:
        """
        Return the report as a document.
        """
        values = {
            name.replace(" (s)", " seconds").replace(" ", "_"): value
            for name, value in self.figures().items()
        }
        return {
            "verdict": self.outcome,
            "guarantee": self.guarantee,
            **values,
            "anomalies": {
                kind: [{"partition": item[1], "record": item[2]} for item in items]
                for kind, items in self.verdict.anomalies.items()
            },
            "error": self.error,
            "kept": list(self.kept),
        }

    def _meaning(self) -> str:
        if self.outcome == VOID:
            return "no record went through, so the guarantee was not tested"
        if self.outcome == ANOMALY:
            return f"{self.guarantee} did not hold"
        return f"{self.guarantee} held"


_ANOMALIES = {
    "lost": "lost",
    "stuck": "stuck",
    "aborted reads": "aborted read",
    "phantoms": "phantom",
    "corrupt": "corrupt",
    "out of order": "non-monotonic",
}
