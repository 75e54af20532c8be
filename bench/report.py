"""
Formats measurements as text: tables, or one line for each ratio.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from bench.measurement import LEFT_OUT, TOP

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from bench.measurement import Measurement
    from bench.results import Results

RATES = ("batch", "stream", "trigger", "typed", "audit")
RATE_HEAD = (
    "case",
    "reader",
    "records/s",
    "x base",
    "(spread)",
    "of ceiling",
    "CPU s/M",
    "worker MB",
)
WRITE_YARDSTICKS = ("jvm-tuned", "jvm-tuned-lz4")
WRITE_HEAD = (
    "case",
    "writer",
    "records/s",
    "x base",
    "(spread)",
    "x tuned",
    "(spread)",
    "x tuned lz4",
    "(spread)",
    "of ceiling",
    "CPU s/M",
    "worker MB",
)
TIME_HEAD = ("case", "reader", "ms", "x base", "(spread)")


def ratio_lines(measurements: Iterable[Measurement]) -> Iterator[str]:
    """
    Yield `batch-100B-wire/jvm 3.12` for each ratio.
    """
    for measurement in measurements:
        for name, ratio in measurement.ratios():
            yield f"{name} {ratio.median:.2f}"


def table(results: Results) -> str:
    """
    Return all results as tables for the terminal.
    """
    kinds = (*RATES, "write")
    rates = [
        row
        for measurement in results.measurements
        if measurement.kind in RATES
        for row in _rates(measurement)
    ]
    writes = [
        row
        for measurement in results.measurements
        if measurement.kind == "write"
        for row in _writes(measurement)
    ]
    times = [
        row
        for measurement in results.measurements
        if measurement.kind not in kinds
        for row in _times(measurement)
    ]
    sections = ((RATE_HEAD, rates), (WRITE_HEAD, writes), (TIME_HEAD, times))
    parts = [aligned([head, *rows]) for head, rows in sections if rows]
    parts += ["\n".join(_memory(results))] if results.memory else []
    return "\n\n".join(parts)


def aligned(rows: list[tuple[str, ...]]) -> str:
    """
    Return rows in aligned columns: the first two to the left, figures to the right.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if index < 2 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def _writes(measurement: Measurement) -> Iterator[tuple[str, ...]]:
    return _rates(measurement, (measurement.base, *WRITE_YARDSTICKS))


def _rates(measurement: Measurement, bases: Sequence[str] = ()) -> Iterator[tuple[str, ...]]:
    for name in measurement.facts.get(LEFT_OUT, ()):
        yield (measurement.name, name, "left out: no jar", *[""] * (len(RATE_HEAD) - 3))
    for name, series in measurement.series.items():
        cpu, peak = measurement.cpu_per_million(name), series.worker_peak_bytes
        yield (
            measurement.name,
            name,
            f"{measurement.records_per_second(name):,.0f}",
            *chain.from_iterable(
                _speedup(measurement, name, over) for over in bases or (measurement.base,)
            ),
            _share(measurement, name),
            f"{cpu:.2f}" if cpu is not None else "-",
            f"{peak / 1e6:.0f}" if peak is not None else "-",
        )


def _times(measurement: Measurement) -> Iterator[tuple[str, ...]]:
    for name in measurement.series:
        milliseconds = 1e9 / measurement.records_per_second(name) / 1e6
        yield (
            measurement.name,
            name,
            f"{milliseconds:,.0f}",
            *_speedup(measurement, name, measurement.base),
        )


def _speedup(measurement: Measurement, name: str, over: str) -> tuple[str, str]:
    if name in {over, measurement.base} or over not in measurement.series:
        return "-", ""
    speedup = measurement.speedup(name, over)
    return f"{speedup.median:.2f}", f"{speedup.min:.2f}..{speedup.max:.2f}"


def _share(measurement: Measurement, name: str) -> str:
    if name in {measurement.base, TOP} or TOP not in measurement.series:
        return "-"
    return f"{measurement.speedup(name, TOP).median:.0%}"


def _memory(results: Results) -> Iterator[str]:
    total = results.memory_total / 1e9
    for name, peak in results.memory.items():
        amount = f"at most {peak / 1e6:.0f} MB" if peak is not None else "an unknown amount"
        yield f"A worker that read {total:.1f} GB from one partition with {name} held {amount}"
