"""
Draws the ratios as bars with their spread; ``python -m bench.chart FILE.json`` redraws a chart.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from bench.measurement import BASE
from bench.results import load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from bench.measurement import Measurement
    from bench.results import Results

PANELS = {
    "Batch": ("batch",),
    "Streaming (availableNow), the whole query": ("stream",),
    "Streaming, the micro-batches alone": ("trigger",),
    "Values as columns": ("typed",),
    "Writing a batch": ("write",),
    "Latency, planning, first batch": ("latency", "planning", "first"),
}
COLOURS = {
    "jvm-tuned": "#d62728",
    "jvm-tuned-lz4": "#f4a3a4",
    "exactly-once": "#2ca02c",
    "wire": "#1f77b4",
    "wire-lz4": "#17becf",
    "pykafka": "#1f77b4",
    "typed": "#1f77b4",
    "pykafka-from_json": "#17becf",
    "pykafka-from_avro": "#9edae5",
    "pykafka-from_protobuf": "#aec7e8",
    "registered": "#17becf",
    "librdkafka": "#ff9f40",
    "ceiling": "#c4c9cf",
}
GROUP_WIDTH = 0.8
INCHES_PER_GROUP = 0.85
MIN_GROUPS = 6


def draw(results: Results) -> list[Path]:
    """
    Write a PNG and an SVG beside the JSON file and return their paths; none without measurements.
    """
    panels = {
        title: bars
        for title, kinds in PANELS.items()
        if (
            bars := [
                measurement for measurement in results.measurements if measurement.kind in kinds
            ]
        )
    }
    if not panels:
        return []
    max_groups = max(len(bars) for bars in panels.values())
    figure = Figure((2 + INCHES_PER_GROUP * max(max_groups, MIN_GROUPS), 1 + 3.4 * len(panels)))
    FigureCanvasAgg(figure)
    for index, (title, bars) in enumerate(panels.items(), start=1):
        _panel(figure.add_subplot(len(panels), 1, index), title, bars)
    figure.suptitle(_heading(results), fontsize=9, wrap=True)
    figure.tight_layout(rect=(0, 0, 1, 0.99))
    paths = [results.path.with_suffix(suffix) for suffix in (".png", ".svg")]
    for path in paths:
        figure.savefig(path, dpi=150)
    return paths


def _panel(axes: Axes, title: str, measurements: Sequence[Measurement]) -> None:
    contenders = [
        name for name in COLOURS if any(name in measurement.series for measurement in measurements)
    ]
    width = GROUP_WIDTH / len(contenders)
    for index, contender in enumerate(contenders):
        shift = (index - (len(contenders) - 1) / 2) * width
        _bars(axes, contender, measurements, shift, width)
    axes.axhline(1, color="black", linewidth=1)
    axes.set_title(title, loc="left", fontsize=11)
    axes.set_ylabel("times as fast as\nSpark's JVM connector")
    labels = [_label(measurement) for measurement in measurements]
    axes.set_xticks(range(len(measurements)), labels, fontsize=8)
    axes.set_xlim(-0.6, max(len(measurements), MIN_GROUPS) - 0.4)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(
        fontsize=8, frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncols=len(contenders),
        columnspacing=1, handlelength=1,
    )  # fmt: skip


def _label(measurement: Measurement) -> str:
    words = measurement.name.split("-")
    parts = words if measurement.kind in {"latency", "planning", "first", "typed"} else words[1:]
    return "\n".join(word for word in parts if word != "trigger")


def _bars(
    axes: Axes, contender: str, measurements: Sequence[Measurement], shift: float, width: float
) -> None:
    positioned: list[tuple[float, Any]] = [
        (index + shift, measurement.speedup(contender))
        for index, measurement in enumerate(measurements)
        if contender in measurement.series and BASE in measurement.series
    ]
    medians = [ratio.median for _, ratio in positioned]
    below = [ratio.median - ratio.min for _, ratio in positioned]
    above = [ratio.max - ratio.median for _, ratio in positioned]
    positions = [x for x, _ in positioned]
    bars = axes.bar(
        positions, medians, width * 0.92, label=contender, color=COLOURS[contender],
        yerr=(below, above), error_kw={"elinewidth": 0.8, "capsize": 1.5, "ecolor": "#444444"},
    )  # fmt: skip
    texts = [f"{median:.1f}" for median in medians]
    axes.bar_label(bars, texts, fontsize=6.5, padding=1)


def _heading(results: Results) -> str:
    versions, machine = results.about["versions"], results.about["machine"]
    return (
        f"pykafka {versions['pykafka']} ({versions['commit']}), Spark {versions['spark']}, "
        f"Kafka {versions['kafka']}, Python {versions['python']}; {machine['cores']} cores of "
        f"{machine['cpu']}, broker included; {results.about['date']}"
    )


if __name__ == "__main__":
    for written in draw(load(Path(sys.argv[1]))):
        print(written)
