"""
The faults of each kind of workload, by the names that the nemesis uses.
"""

from __future__ import annotations

CLUSTER_FAULTS = (
    "crash",
    "pause broker",
    "isolate",
    "move leader",
    "late leader",
    "forget topics",
    "lag",
    "cut",
    "drop responses",
    "refuse",
    "slow",
    "reset",
    "forget connections",
    "black hole",
    "throttle",
)
#: Without "forget topics", so that at any time at least one of the three brokers knows the topics.
IGNORANCE_FAULTS = (
    *(fault for fault in CLUSTER_FAULTS if fault != "forget topics"),
    "isolate and forget",
)
PROCESS_FAULTS = (
    "set clock",
    "kill worker",
    "pause worker",
    "kill driver",
    "pause driver",
    "replace driver",
)
READ_FAULTS = (*CLUSTER_FAULTS, *PROCESS_FAULTS, "tiered")
WRITE_FAULTS = (*CLUSTER_FAULTS, *PROCESS_FAULTS, "move coordinator")
