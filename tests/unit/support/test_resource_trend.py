"""
The check that no resource of a job's processes grows finds leaks, and allows peaks.
"""

from __future__ import annotations

import os
import subprocess
import sys

import psutil
import pytest
from tests.support.resource_trend import Sample, check_flat, growth, sample

LIMITS = {"processes": 1.0, "files": 3.0, "megabytes": 16.0}
#: The values of a process whose resources are flat.
FLAT: Sample = {"worker processes": 2, "worker files": 20, "worker megabytes": 100}
COUNT = 40


def test_flat_samples_pass() -> None:
    """
    Values that stay the same pass, even if they have grown in the first quarter, while caches fill.
    """
    young = {name: value // 2 for name, value in FLAT.items()}

    check_flat([young] * (COUNT // 4) + [FLAT] * (COUNT * 3 // 4), LIMITS)


def test_peaks_pass() -> None:
    """
    A sample in the middle of a restart may have more of everything, at the end too.
    """
    peak = {name: value * 3 for name, value in FLAT.items()}
    peaks = [peak if number % 4 == 3 else FLAT for number in range(COUNT)]

    check_flat(peaks, LIMITS)


@pytest.mark.parametrize(
    ("name", "each"),
    [("worker files", 0.3), ("worker megabytes", 1.0), ("worker processes", 0.1)],
)
def test_a_leak_is_found(name: str, each: float) -> None:
    """
    A slow growth is found, and the error names the value and both medians.
    """
    leaking = [{**FLAT, name: FLAT[name] + int(number * each)} for number in range(COUNT)]

    with pytest.raises(AssertionError, match=rf"^{name}: \d+.* in the second quarter, \d+[^;]*$"):
        check_flat(leaking, LIMITS)


def test_a_process_may_have_a_limit_of_its_own() -> None:
    """
    The limit of a process and a resource takes precedence over the limit of the resource.
    """
    grown = {**FLAT, "worker files": FLAT["worker files"] + 8}
    samples = [FLAT] * (COUNT // 2) + [grown] * (COUNT // 2)

    check_flat(samples, LIMITS | {"worker files": 8.0})
    with pytest.raises(AssertionError, match="worker files"):
        check_flat(samples, LIMITS | {"other files": 8.0})


def test_a_new_kind_of_process_is_growth() -> None:
    """
    Processes that exist only at the end count as growth from 0.
    """
    late = [FLAT] * (COUNT // 2) + [{**FLAT, "planner processes": 4}] * (COUNT // 2)

    assert growth(late)["planner processes"] == (0, 4)
    with pytest.raises(AssertionError, match="planner processes"):
        check_flat(late, LIMITS)


def test_too_few_samples_fail() -> None:
    """
    A run that was hardly measured does not pass.
    """
    with pytest.raises(AssertionError, match="11 samples are too few to show a trend"):
        check_flat([FLAT] * 11, LIMITS)


def test_the_values_of_a_process() -> None:
    """
    A sample has the files, threads and memory of a process; one that has ended is left out.
    """
    with subprocess.Popen([sys.executable, "-c", ""]) as short:
        ended = psutil.Process(short.pid)
        short.wait()

    values = sample([psutil.Process(os.getpid()), ended])

    (role,) = {name.rpartition(" ")[0] for name in values}
    assert values[f"{role} processes"] == 1
    assert values[f"{role} files"] > 2
    assert values[f"{role} threads"] >= 1
    assert values[f"{role} megabytes"] > 10
