"""
Samples of the resources of a job's processes, and the check that none of them grows.
"""

from __future__ import annotations

from contextlib import suppress
from statistics import median
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

#: Values by name: the role of a process and the resource, such as "jvm files".
Sample = dict[str, int]

_MEGABYTE = 1 << 20
#: With fewer samples than this in a quarter, a single one can move the median.
_SAMPLES_OF_A_QUARTER = 3


def sample(processes: Iterable[psutil.Process]) -> Sample:
    """
    Return the number of processes in each role, and the largest value of each resource in one
    process of the role.

    The roles are the driver, the JVM, and each Python module that Spark runs; a worker that a
    daemon has forked has the name of the daemon's role, followed by ``fork``.
    """
    found: Sample = {}
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            role, values = _role(process), _values(process)
            found[f"{role} processes"] = found.get(f"{role} processes", 0) + 1
            for name, value in values.items():
                found[f"{role} {name}"] = max(found.get(f"{role} {name}", 0), value)
    return found


def _values(process: psutil.Process) -> Sample:
    with process.oneshot():
        values = {"files": process.num_fds(), "threads": process.num_threads()}
        memory = process.memory_info().rss // _MEGABYTE
    # Java takes memory until its heap is full, so its size shows no leak.
    return values if process.name() == "java" else {**values, "megabytes": memory}


def _role(process: psutil.Process) -> str:
    if process.name() == "java":
        return "jvm"
    words = process.cmdline()
    if "-m" not in words:
        return "driver"
    modules = [word.rpartition(".")[2] for word in words[words.index("-m") + 1 :]]
    parent = process.parent()
    is_forked = parent is not None and parent.cmdline() == words
    return " ".join([*modules, "fork"] if is_forked else modules)


def growth(samples: Sequence[Sample]) -> dict[str, tuple[float, float]]:
    """
    Return the median of each value in the second quarter of the samples, and in the last.

    A value that a sample does not have counts as 0. Raises AssertionError if there are too few
    samples to show a trend.
    """
    quarter = len(samples) // 4
    if quarter < _SAMPLES_OF_A_QUARTER:
        msg = f"{len(samples)} samples are too few to show a trend"
        raise AssertionError(msg)
    second, last = samples[quarter : 2 * quarter], samples[-quarter:]
    names = {name: None for values in samples for name in values}
    return {name: (_median(second, name), _median(last, name)) for name in names}


def check_flat(samples: Sequence[Sample], limits: Mapping[str, float]) -> None:
    """
    Fail if a value has grown by more than its limit. A limit has the name of the value, or that of
    its resource, which is the last word of the value's name.
    """
    grown = [
        f"{name}: {before:g} in the second quarter, {after:g} in the last, limit {limit:g} more"
        for name, (before, after) in growth(samples).items()
        if after - before > (limit := limits.get(name, limits[name.rpartition(" ")[2]]))
    ]
    assert not grown, "; ".join(grown)


def _median(samples: Sequence[Sample], name: str) -> float:
    return float(median(values.get(name, 0) for values in samples))
