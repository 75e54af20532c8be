"""
Planted faults of the producer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from tests.simulation.planted.fault import Fault

if TYPE_CHECKING:
    from tests.simulation.spark.connector import Connector

_WIRE = "engines.wire"


def error_is_an_acknowledgement(connector: Connector) -> list[Any]:
    """
    A writer treats any error code in a response as success.
    """
    handler = connector.module(f"{_WIRE}.producer.response_handler").ResponseHandler
    return [
        patch.object(
            handler, "_on_rejected", lambda self, queue, batch, _: self._acknowledge(queue, batch)
        )
    ]


def timeout_is_an_acknowledgement(connector: Connector) -> list[Any]:
    """
    A batch whose request had no response in time, or lost its connection, counts as written.
    """
    handler = connector.module(f"{_WIRE}.producer.response_handler").ResponseHandler
    original = handler.retry

    def retry(self: Any, queue: Any, batch: Any, error: Any) -> None:
        if type(error).__name__ == "TimeoutExceededError":
            self._acknowledge(queue, batch)
        else:
            original(self, queue, batch, error)

    return [patch.object(handler, "retry", retry)]


def retry_has_a_new_sequence(connector: Connector) -> list[Any]:
    """
    A batch that is sent again gets the next sequence number, so that brokers do not recognise the
    duplicate.
    """
    queue = connector.module(f"{_WIRE}.producer.partition_queue").PartitionQueue

    def settle(self: Any) -> None:
        if self.requeued and not self.in_flight:
            self.requeued.sort(key=lambda batch: batch.sequence)
            for batch in self.requeued:
                batch.sequence = None
            self.waiting.extendleft(reversed(self.requeued))
            self.requeued.clear()

    return [patch.object(queue, "_settle", settle)]


def retries_are_reordered(connector: Connector) -> list[Any]:
    """
    Retried batches are queued behind the waiting ones, with new sequence numbers.
    """
    queue = connector.module(f"{_WIRE}.producer.partition_queue").PartitionQueue

    def settle(self: Any) -> None:
        if self.requeued and not self.in_flight:
            for batch in self.requeued:
                batch.sequence = None
            self.waiting.extend(self.requeued)
            self.requeued.clear()

    return [patch.object(queue, "_settle", settle)]


def first_batch_is_not_awaited(connector: Connector) -> list[Any]:
    """
    Several batches are in flight before the first one is acknowledged. If the leader rejects only
    the first batch, it accepts the second one in its place, and then can never accept the first
    (KAFKA-14359).
    """
    queue = connector.module(f"{_WIRE}.producer.partition_queue").PartitionQueue

    def is_sendable(self: Any, now: float) -> bool:
        is_due = not self.requeued and now >= self.not_before
        return bool(self.waiting) and is_due and len(self.in_flight) < self.max_in_flight

    return [patch.object(queue, "is_sendable", is_sendable)]


FAULTS = {
    "retries-are-reordered": Fault("at-least-once", "non-monotonic", retries_are_reordered),
    "error-is-an-acknowledgement": Fault("at-least-once", "lost", error_is_an_acknowledgement),
    "timeout-is-an-acknowledgement": Fault("at-least-once", "lost", timeout_is_an_acknowledgement),
    "first-batch-is-not-awaited": Fault(
        "at-least-once", "non-monotonic", first_batch_is_not_awaited
    ),
    "retry-has-a-new-sequence": Fault("exactly-once", "duplicate", retry_has_a_new_sequence),
}
