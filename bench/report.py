"""
Formats measurements as text: tables, or one line for each ratio.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from bench.measurement import TOP

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from bench.measurement import Measurement
    from bench.results import Results

RATES = ("batch", "stream", "trigger", "audit")
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
    for one in measurements:
        for name, ratio in one.ratios():
            yield f"{name} {ratio.median:.2f}"


def table(results: Results) -> str:
    """
    Return all results as tables for the terminal.
    """
    kinds = (*RATES, "write")
    rates = [row for one in results.measurements if one.kind in RATES for row in _rates(one)]
    writes = [row for one in results.measurements if one.kind == "write" for row in _writes(one)]
    times = [row for one in results.measurements if one.kind not in kinds for row in _times(one)]
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
            cell.ljust(width) if at < 2 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def _writes(one: Measurement) -> Iterator[tuple[str, ...]]:
    return _rates(one, (one.base, *WRITE_YARDSTICKS))


def _rates(one: Measurement, bases: Sequence[str] = ()) -> Iterator[tuple[str, ...]]:
    for who, series in one.series.items():
        cpu, peak = one.cpu_per_million(who), series.worker_peak_bytes
        yield (
            one.name,
            who,
            f"{one.records_per_second(who):,.0f}",
            *chain.from_iterable(_speedup(one, who, over) for over in bases or (one.base,)),
            _share(one, who),
            f"{cpu:.2f}" if cpu is not None else "-",
            f"{peak / 1e6:.0f}" if peak is not None else "-",
        )


def _times(one: Measurement) -> Iterator[tuple[str, ...]]:
    for who in one.series:
        milliseconds = 1e9 / one.records_per_second(who) / 1e6
        yield one.name, who, f"{milliseconds:,.0f}", *_speedup(one, who, one.base)


def _speedup(one: Measurement, who: str, over: str) -> tuple[str, str]:
    if who in {over, one.base} or over not in one.series:
        return "-", ""
    found = one.speedup(who, over)
    return f"{found.median:.2f}", f"{found.min:.2f}..{found.max:.2f}"


def _share(one: Measurement, who: str) -> str:
    if who in {one.base, TOP} or TOP not in one.series:
        return "-"
    return f"{one.speedup(who, TOP).median:.0%}"


def _memory(results: Results) -> Iterator[str]:
    total = results.memory_total / 1e9
    for who, peak in results.memory.items():
        held = f"at most {peak / 1e6:.0f} MB" if peak is not None else "an unknown amount"
        yield f"A worker that read {total:.1f} GB from one partition with {who} held {held}"
