"""
The results of a run as a document: its environment and its totals.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from bench.versions import machine, versions
from tests.soak.verdicts import check_footprint


def environment() -> dict[str, Any]:
    """
    Return versions, commit and machine.
    """
    return {"versions": versions(), "machine": machine()}


def totals(document: dict[str, Any]) -> str:
    """
    Return the totals of a run in one line.
    """
    workloads = [
        workload
        for round_document in document["rounds"]
        for workload in round_document["workloads"]
    ]
    outcomes = Counter(workload["outcome"] for workload in workloads)
    faults = sum(len(round_document["faults"]) for round_document in document["rounds"])
    records = sum(workload["records"] for workload in workloads)
    leaks = check_footprint(document["footprints"], document["query_starts"])
    return (
        f"{len(document['rounds'])} rounds, {records} records, {faults} faults; "
        f"verdicts: {dict(outcomes)}; broken rounds: {len(document['broken'])}; "
        f"leaks: {leaks or 'none'}"
    )
