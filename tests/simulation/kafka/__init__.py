"""
A simulated Kafka cluster, as a pure state machine: requests in, responses out, time injected.
"""

from __future__ import annotations

from tests.simulation.kafka.cluster import SimulatedCluster
from tests.simulation.kafka.settings import ClusterSettings, Schedule
from tests.simulation.kafka.wire import expects_reply

__all__ = ["ClusterSettings", "Schedule", "SimulatedCluster", "expects_reply"]
