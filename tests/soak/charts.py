"""
Draws runs one after another: throughput and lag over time, the faults beneath, and the driver's
resources.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

TIMELINE, RESOURCES = "soak-timeline.svg", "soak-resources.svg"
_MINUTE = 60.0
#: With a fixed salt and without a date, equal results give equal files.
_SETTINGS: dict[Any, Any] = {"svg.hashsalt": "pykafka", "svg.fonttype": "path", "font.size": 9}
_METADATA = {"Date": None}
_BLUE, _RED, _GREY = "#1f77b4", "#d62728", "#c4c9cf"


def draw(runs: Sequence[dict[str, Any]], folder: Path) -> list[Path]:
    """
    Write the pictures of runs and return their paths.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with rc_context(_SETTINGS):
        return [
            _save(_timeline(runs), folder / TIMELINE),
            _save(_resources(runs), folder / RESOURCES),
        ]


def _save(figure: Figure, path: Path) -> Path:
    FigureCanvasAgg(figure)
    figure.savefig(path, metadata=_METADATA)
    return path


def _timeline(runs: Sequence[dict[str, Any]]) -> Figure:
    figure = Figure(figsize=(11, 8), layout="constrained")
    kinds = sorted(
        {fault["kind"] for _, round_document in _rounds(runs) for fault in round_document["faults"]}
    )
    ratios = [2, 2, max(1.0, len(kinds) / 5)]
    throughput, lag, faults = figure.subplots(3, 1, sharex=True, height_ratios=ratios)
    for start, round_document in _rounds(runs):
        samples = round_document["samples"]
        for axes, value in ((throughput, _rates), (lag, _lags)):
            times, values = value(samples, start)
            axes.plot(times, values, color=_BLUE, linewidth=0.8)
        for axes in (throughput, lag, faults):
            axes.axvline((round_document["start"] - start) / _MINUTE, color=_GREY, linewidth=0.6)
        for fault in round_document["faults"]:
            _draw_fault(faults, kinds.index(fault["kind"]), fault, start)
    throughput.set_ylabel("records processed / s")
    lag.set_ylabel("lag, records")
    faults.set_yticks(range(len(kinds)), kinds)
    faults.set_ylim(-0.6, max(len(kinds) - 0.4, 0.6))
    faults.invert_yaxis()
    faults.set_xlabel("minutes; a vertical line begins a round")
    return figure


def _rounds(runs: Sequence[dict[str, Any]]) -> Iterator[tuple[float, dict[str, Any]]]:
    """
    Yield each round with the time that is 0 on the axis; each run starts where the last one ended.
    """
    earlier_seconds = 0.0
    for run in runs:
        for round_document in run["rounds"]:
            yield run["start"] - earlier_seconds, round_document
        earlier_seconds += run["end"] - run["start"]


def _rates(samples: Sequence[dict[str, Any]], start: float) -> tuple[list[float], list[float]]:
    pairs = [(a, b) for a, b in pairwise(samples) if b["at"] > a["at"]]
    times = [(b["at"] - start) / _MINUTE for _, b in pairs]
    return times, [(b["processed"] - a["processed"]) / (b["at"] - a["at"]) for a, b in pairs]


def _lags(samples: Sequence[dict[str, Any]], start: float) -> tuple[list[float], list[float]]:
    return [(sample["at"] - start) / _MINUTE for sample in samples], [
        sample["lag"] for sample in samples
    ]


def _draw_fault(axes: Axes, row: int, fault: dict[str, Any], start: float) -> None:
    begin, end = (fault["start"] - start) / _MINUTE, (fault["end"] - start) / _MINUTE
    axes.barh(row, max(end - begin, 0.05), left=begin, height=0.7, color=_RED)


def _resources(runs: Sequence[dict[str, Any]]) -> Figure:
    panels: tuple[tuple[str, Callable[[str], bool]], ...] = (
        ("threads", lambda name: name.endswith("threads")),
        ("open files", lambda name: name.endswith("files")),
        ("megabytes", lambda name: name.endswith("megabytes")),
    )
    measured = [run for run in runs if run["footprints"]]
    figure = Figure(figsize=(11, 3.4), layout="constrained")
    for axes, (title, belongs) in zip(figure.subplots(1, len(panels)), panels, strict=True):
        axes.set_title(title)
        axes.set_xlabel("starts of queries")
        for run in measured:
            for color, name in enumerate(filter(belongs, run["footprints"][0])):
                label = _process(name) if run is measured[0] else None
                values = [sample[name] for sample in run["footprints"]]
                axes.plot(run["query_starts"], values, marker=".", color=f"C{color}", label=label)
        if measured:
            axes.set_ylim(bottom=0)
            axes.legend()
    return figure


def _process(name: str) -> str:
    if name == "jvm_heap_megabytes":
        return "JVM, heap in use"
    return "JVM" if name.startswith("jvm") else "Python"
