"""
Faults that the connector had, or could have, put back on purpose: the simulation must find each.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from tests.simulation.spark.connector import simulated_connector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.simulation.spark.connector import Connector

_WIRE = "engines.wire"


@dataclass(frozen=True, slots=True)
class Fault:
    """
    A planted fault: the workload that shows it, the anomaly, and the replacements that make it.
    """

    workload: str
    anomaly: str
    plant: Callable[[Connector], list[Any]]


def _empty_response_is_a_gap(connector: Connector) -> list[Any]:
    """
    Four answers without records are taken for a hole in the log.
    """
    reader = connector.module(f"{_WIRE}.consumer.range_reader")._RangeReader
    original = reader._on_empty_fetch

    def on_empty_fetch(self: Any, fetched: Any) -> None:
        if self.empty_responses >= 3 and fetched.high_watermark > self.columns.position:
            self.columns.skip_to(min(fetched.high_watermark, self.range.end))
            self._on_progress()
            return
        original(self, fetched)

    return [patch.object(reader, "_on_empty_fetch", on_empty_fetch)]


def _high_watermark_is_the_end(connector: Connector) -> list[Any]:
    """
    The rest of a range is lost if a leader's high watermark is below it, whatever ListOffsets says.
    """
    reader = connector.module(f"{_WIRE}.consumer.range_reader")._RangeReader

    def on_short_log(self: Any, end: int) -> None:
        self.short_responses += 1
        if self.short_responses > 3:
            self._skip_lost(f"the log ends at offset {end}", self.range.end)
        else:
            self.fetcher.back_off(self.columns.position, "the log is short")

    return [patch.object(reader, "_on_short_log", on_short_log)]


def _aborted_records_are_read(connector: Connector) -> list[Any]:
    """
    The index of aborted transactions is ignored.
    """
    fetcher = connector.module(f"{_WIRE}.consumer.partition_fetcher").PartitionFetcher
    original = fetcher._to_result

    def to_result(self: Any, response: Any, fetch: Any) -> Any:
        return original(self, response, fetch)._replace(aborted_transactions=())

    return [patch.object(fetcher, "_to_result", to_result)]


def _stale_broker_is_believed(connector: Connector) -> list[Any]:
    """
    Metadata with an older leader epoch count, and no second broker is asked.
    """
    module = connector.module(f"{_WIRE}.network.metadata_freshness")
    return [
        patch.object(module.LastSeenEpochs, "staleness", lambda *_: None),
        patch.object(module.FreshnessCheck, "_needs_second_response", property(lambda _: False)),
    ]


def _error_is_an_acknowledgement(connector: Connector) -> list[Any]:
    """
    A writer takes a retriable error for success.
    """
    handler = connector.module(f"{_WIRE}.producer.response_handler").ResponseHandler
    return [
        patch.object(
            handler, "_on_rejected", lambda self, queue, batch, _: self._acknowledge(queue, batch)
        )
    ]


def _missed_marker(connector: Connector) -> list[Any]:
    """
    A replay does not see the last committed marker of its batch.
    """
    module = connector.module("sink.micro_batch_committer")
    original = module.committed_tasks

    def committed_tasks(batch: Any, committed: Any) -> Any:
        markers = [
            at
            for at, entry in enumerate(committed)
            if type(entry).__name__ == "Marker" and entry.batch == batch.batch
        ]
        missed = markers[-1:]
        return original(batch, [e for at, e in enumerate(committed) if at not in missed])

    return [patch.object(module, "committed_tasks", committed_tasks)]


def _late_fence(connector: Connector) -> list[Any]:
    """
    Open transactions of earlier attempts are not fenced before a batch is committed.
    """
    module = connector.module("sink.micro_batch_committer")
    return [patch.object(module, "_abort_lost_attempts_if_alone", lambda *_: None)]


def _no_roll_forward(connector: Connector) -> list[Any]:
    """
    A restart aborts what a dead driver had decided to commit, and compares markers instead.
    """
    module = connector.module("sink.micro_batch_committer")
    return [patch.object(module, "_roll_forward", lambda *_: [])]


def _counts_for_rows(connector: Connector) -> list[Any]:
    """
    As before the hash: equal counts pass for equal rows, and nothing is rolled forward.
    """
    module = connector.module("sink.replay")
    original = module._check_same_rows

    def check(batch: Any, marker: Any, now: Any, found: Any) -> None:
        records = 0 if now is None else now.records
        if marker.records != records:
            original(batch, marker, now, found)

    return [*_no_roll_forward(connector), patch.object(module, "_check_same_rows", check)]


def _replay_with_other_partitions(connector: Connector) -> list[Any]:
    """
    A tiny batch has one task when it is prefetched, and one per range when it is replayed.
    """
    reader = connector.module("spark.stream_reader").KafkaStreamReader
    original = reader.partitions

    def partitions(self: Any, start: Any, end: Any) -> Any:
        planned = original(self, start, end)
        if "is_later" in self.__dict__ or len(planned) != 1:
            self.is_later = True
            return planned
        self.is_later = True
        ranges = planned[0].value
        kind = type(planned[0])
        if not isinstance(ranges, tuple) or not all(hasattr(each, "tp") for each in ranges):
            return planned
        self.__dict__["_attached"] = None
        return [kind(each) for each in ranges]

    return [*_counts_for_rows(connector), patch.object(reader, "partitions", partitions)]


def _intent_is_not_awaited(connector: Connector) -> list[Any]:
    """
    Transactions are committed although the intent was not appended.
    """
    module = connector.module("sink.micro_batch_committer")
    return [patch.object(module, "_decide", lambda *_: None)]


def _two_writers(connector: Connector) -> list[Any]:
    """
    Nobody looks for another writer of the same batch.
    """
    committer = connector.module("sink.micro_batch_committer")
    return [
        patch.object(committer, "check_single_writer", lambda *_: None),
        patch.object(committer, "check_binding", lambda *_: None),
        patch.object(committer, "check_not_superseded", lambda *_: None),
    ]


PLANTED: dict[str, Fault] = {
    "empty-response-is-a-gap": Fault("source", "lost", _empty_response_is_a_gap),
    "high-watermark-is-the-end": Fault("source", "lost", _high_watermark_is_the_end),
    "aborted-records-are-read": Fault("source", "aborted read", _aborted_records_are_read),
    "stale-broker-is-believed": Fault("batch", "lost", _stale_broker_is_believed),
    "error-is-an-acknowledgement": Fault("at-least-once", "lost", _error_is_an_acknowledgement),
    "missed-marker": Fault("exactly-once", "duplicate", _missed_marker),
    "late-fence": Fault("exactly-once", "stuck", _late_fence),
    "no-roll-forward": Fault("exactly-once", "REPLAY_DIFFERS", _no_roll_forward),
    "counts-for-rows": Fault("exactly-once", "lost", _counts_for_rows),
    "replay-with-other-partitions": Fault("chained", "lost", _replay_with_other_partitions),
    "intent-is-not-awaited": Fault("exactly-once", "REPLAY_DIFFERS", _intent_is_not_awaited),
    "two-writers": Fault("exactly-once", "duplicate", _two_writers),
}


@contextmanager
def planted(name: str | None) -> Iterator[None]:
    """
    Put a fault into the simulated copy for the duration of a block.
    """
    with ExitStack() as stack:
        if name is not None:
            for replacement in PLANTED[name].plant(simulated_connector()):
                stack.enter_context(replacement)
        yield
