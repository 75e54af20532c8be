"""
Planted faults of reads.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch
from weakref import WeakKeyDictionary

from tests.simulation.planted.fault import Fault

if TYPE_CHECKING:
    from tests.simulation.spark.connector import Connector

_WIRE = "engines.wire"


def empty_response_is_a_gap(connector: Connector) -> list[Any]:
    """
    Four responses without records count as a hole in the log.
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


def high_watermark_is_the_end(connector: Connector) -> list[Any]:
    """
    A leader's high watermark below the range counts as the log's end, whatever ListOffsets returns.
    """
    reader = connector.module(f"{_WIRE}.consumer.range_reader")._RangeReader

    def on_short_log(self: Any, end: int) -> None:
        self._skip_lost(f"the log ends at offset {end}", self.range.end)

    return [patch.object(reader, "_on_short_log", on_short_log)]


def aborted_records_are_read(connector: Connector) -> list[Any]:
    """
    The index of aborted transactions is ignored.
    """
    fetcher = connector.module(f"{_WIRE}.consumer.partition_fetcher").PartitionFetcher
    original = fetcher._to_result

    def to_result(self: Any, response: Any, fetch: Any) -> Any:
        return original(self, response, fetch)._replace(aborted_transactions=())

    return [patch.object(fetcher, "_to_result", to_result)]


def stale_broker_is_believed(connector: Connector) -> list[Any]:
    """
    Metadata with an older leader epoch is accepted, and no second broker is queried.
    """
    epochs_module = connector.module(f"{_WIRE}.network.last_seen_epochs")
    freshness = connector.module(f"{_WIRE}.network.metadata_freshness")
    return [
        patch.object(epochs_module.LastSeenEpochs, "staleness", lambda *_: None),
        patch.object(freshness.FreshnessCheck, "needs_second_response", property(lambda _: False)),
        patch.object(freshness.FreshnessCheck, "rests_on_one_broker", property(lambda _: False)),
    ]


def only_new_aborts_count(connector: Connector) -> list[Any]:
    """
    Aborted transactions that began before the fetched offset are ignored.
    """
    fetcher = connector.module(f"{_WIRE}.consumer.partition_fetcher").PartitionFetcher
    original = fetcher._to_result

    def to_result(self: Any, response: Any, fetch: Any) -> Any:
        result = original(self, response, fetch)
        later = tuple(pair for pair in result.aborted_transactions if pair[0] >= fetch.offset)
        return result._replace(aborted_transactions=later)

    return [patch.object(fetcher, "_to_result", to_result)]


def one_report_is_a_deletion(connector: Connector) -> list[Any]:
    """
    A topic counts as deleted once one broker has reported it as unknown and the others have not
    responded since.
    """
    check = connector.module(f"{_WIRE}.network.metadata_freshness").FreshnessCheck
    missing = connector.module(f"{_WIRE}.consumer.retrying_fetcher")._MissingTopic
    original = missing.is_gone

    def is_gone(self: Any, error: Any) -> bool:
        deadline = self._missing_deadline
        return bool(deadline and deadline.expired and error.retriable) or original(self, error)

    return [
        patch.object(check, "is_confirmed", property(lambda _: True)),
        patch.object(missing, "is_gone", is_gone),
    ]


def truncation_is_not_checked(connector: Connector) -> list[Any]:
    """
    A range that was planned before an unclean election is read from the log after it (KIP-320).
    """
    check = connector.module(f"{_WIRE}.consumer.truncation_check").TruncationCheck
    loss = connector.module("source.data_loss").DataLossReporter
    return [
        patch.object(check, "run", lambda *_: None),
        patch.object(loss, "check_truncation", lambda *_: None),
    ]


def losses_are_not_reported(connector: Connector) -> list[Any]:
    """
    Offsets that retention has deleted are skipped, whatever ``failOnDataLoss`` is.
    """
    reader = connector.module(f"{_WIRE}.consumer.range_reader")
    loss = connector.module("source.data_loss").DataLossReporter
    return [
        patch.object(reader, "report_data_loss", lambda *_, **__: None),
        patch.object(loss, "report_plan", lambda *_: None),
    ]


def new_partitions_start_at_the_end(connector: Connector) -> list[Any]:
    """
    A partition that is added while a stream runs is read from its latest offset.
    """
    module = connector.module("source.micro_batch_stream")

    def starting_new(start: Any, end: Any, _: Any) -> Any:
        return replace(start, offsets={**end.offsets, **start.offsets})

    return [patch.object(module, "with_added_partitions", starting_new)]


def recreation_is_not_noticed(connector: Connector) -> list[Any]:
    """
    Topics are compared by name only, so a recreated topic is not recognised.
    """
    offset = connector.module("offsets").StreamOffset
    return [patch.object(offset, "recreated_topics", lambda *_: frozenset())]


def one_broker_plans(connector: Connector) -> list[Any]:
    """
    Topics that are new to a process are read from the metadata of one broker, stale or not.
    """
    check = connector.module(f"{_WIRE}.network.metadata_freshness").FreshnessCheck
    return [
        patch.object(check, "needs_second_response", property(lambda _: False)),
        patch.object(check, "rests_on_one_broker", property(lambda _: False)),
    ]


def unknown_topic_counts_as_confirmation(connector: Connector) -> list[Any]:
    """
    The response of a broker that does not know a topic yet counts as a confirmation of another
    broker's response.
    """
    check = connector.module(f"{_WIRE}.network.metadata_freshness").FreshnessCheck

    def needs_second_response(self: Any) -> bool:
        return bool(self.confirms_new_topics and len(self._brokers) > 1 and self.responses < 2)

    return [
        patch.object(check, "needs_second_response", property(needs_second_response)),
        patch.object(check, "rests_on_one_broker", property(lambda _: False)),
    ]


def worker_keeps_its_leader(connector: Connector) -> list[Any]:
    """
    A reused worker requests the end of a log from the leader that it read from before.
    """
    fetcher = connector.module(f"{_WIRE}.consumer.partition_fetcher").PartitionFetcher
    return [patch.object(fetcher, "confirmed_watermarks", fetcher.watermarks)]


def ranges_have_no_topic_id(connector: Connector) -> list[Any]:
    """
    The ranges of a batch read apply to any topic with the same name.
    """
    module = connector.module("spark.batch_reader")
    original = module.plan_batch

    def plan_batch(*arguments: Any, **_: Any) -> Any:
        return original(*arguments, topic_ids={})

    return [patch.object(module, "plan_batch", plan_batch)]


def topic_id_is_not_confirmed(connector: Connector) -> list[Any]:
    """
    Records that are fetched by the topic's name count as records of the planned topic.
    """
    fetcher = connector.module(f"{_WIRE}.consumer.retrying_fetcher").RetryingFetcher
    return [patch.object(fetcher, "confirm_one_topic", lambda _: True)]


def other_brokers_confirm_the_topic(connector: Connector) -> list[Any]:
    """
    After a read by name, any broker's metadata show whether the topic is still the same.
    """
    fetcher = connector.module(f"{_WIRE}.consumer.partition_fetcher").PartitionFetcher

    def confirm_topic(self: Any, deadline: Any) -> None:
        if self.topic_id is not None:
            self.cluster.invalidate_metadata(self.tp.topic)
            self._leader(deadline)

    return [patch.object(fetcher, "confirm_topic", confirm_topic)]


def added_partitions_are_not_read(connector: Connector) -> list[Any]:
    """
    A view that was planned before partitions were added is read without them.
    """
    module = connector.module("spark.batch_reader")
    return [patch.object(module, "with_last_range", lambda ranges, *_: ranges)]


def memory_is_reused(connector: Connector) -> list[Any]:
    """
    All responses of a connection share one buffer, and a response is decoded only after the next
    one was received.
    """
    network = connector.module(f"{_WIRE}.network.frame_reader")
    request = connector.module(f"{_WIRE}.protocol.metadata").metadata_request
    deadline = connector.module("retry").Deadline
    reader = connector.module(f"{_WIRE}.consumer.range_reader")._RangeReader
    read, decode = network.FrameReader.read, reader._decode
    shared: WeakKeyDictionary[Any, bytearray] = WeakKeyDictionary()

    def read_into_shared(self: Any, sent: Any, limit: Any) -> Any:
        def reserve(size: int) -> memoryview:
            memory = shared.setdefault(self, bytearray(1 << 20))
            return memoryview(memory)[:size]

        with (
            patch.object(self._fetch_buffer, "reserve", reserve),
            patch.object(network, "new_buffer", reserve),
        ):
            return read(self, sent, limit)

    def decode_late(self: Any, fetched: Any) -> Any:
        cluster, limit = self.fetcher.partition.cluster, deadline.after(10.0)
        connection = cluster.connection(cluster.leader(self.range.tp, limit).node, limit)
        connection.request(request(8, None, allow_auto_topic_creation=False), limit)
        yield from decode(self, fetched)

    return [
        patch.object(network.FrameReader, "read", read_into_shared),
        patch.object(reader, "_decode", decode_late),
    ]


def start_is_resolved_again(connector: Connector) -> list[Any]:
    """
    The end of the first micro-batch does not contain the query's start, so a run that repeats the
    micro-batch begins at the offsets that are the latest then.
    """
    module = connector.module("source.micro_batch_stream")
    stream = module.MicroBatchStream
    original = stream.latest_offset

    def latest_offset(self: Any, start: Any, **options: Any) -> Any:
        end = original(self, start, **options)
        return {key: value for key, value in end.items() if key != "@initial"}

    return [patch.object(stream, "latest_offset", latest_offset)]


def available_now_has_no_fixed_end(connector: Connector) -> list[Any]:
    """
    Each micro-batch of an availableNow run ends at the offsets that are the latest when it is
    planned.
    """
    stream = connector.module("source.micro_batch_stream").MicroBatchStream
    return [patch.object(stream, "_latest_after", lambda self, start: self._ends.latest(start))]


def unfinished_batch_needs_its_topic(connector: Connector) -> list[Any]:
    """
    An availableNow run also requires that the end of a micro-batch that an earlier run planned
    still exists: if the topic was deleted, the query cannot start again.
    """
    module = connector.module("source.micro_batch_stream")
    original = module.MicroBatchStream.plan

    def plan(self: Any, start: Any, end: Any) -> Any:
        if self._fixed_end is not None and start != end:
            self._ends.check_end_exists(module.StreamOffset.from_json(end))
        return original(self, start, end)

    return [patch.object(module.MicroBatchStream, "plan", plan)]


def second_pass_ends_early(connector: Connector) -> list[Any]:
    """
    A read with ``latestPerKey`` leaves out the last of its records.
    """
    selection = connector.module("source.latest_per_key")._Selection
    original = selection.__init__

    def init(self: Any, requested: Any, offsets: Any) -> None:
        original(self, requested, offsets[:-1])

    return [patch.object(selection, "__init__", init)]


def aborted_records_hide_keys(connector: Connector) -> list[Any]:
    """
    The first pass of a read with ``latestPerKey`` also reads the keys of aborted records.
    """
    module = connector.module("source.latest_per_key")
    fetch = module.fetch

    def read(requested: Any, settings: Any) -> Any:
        is_first = settings.schema is module._KEYS
        level = "read_uncommitted" if is_first else settings.isolation_level
        return fetch(requested, replace(settings, isolation_level=level))

    defaults = (read, module.range_in_log)
    return [patch.object(module.latest_records, "__defaults__", defaults)]


def end_at_a_time_moves(connector: Connector) -> list[Any]:
    """
    A partition without a record at or after the end time is read up to its latest offset at the
    time of the task.
    """
    module = connector.module("source.offset_limits")
    latest = connector.module("offsets").LATEST

    def with_ends(resolved: Any, _: Any) -> Any:
        return {tp: latest if offset is None else offset for tp, offset in resolved.items()}

    return [patch.object(module, "_with_ends", with_ends)]


def records_of_one_time_are_skipped(connector: Connector) -> list[Any]:
    """
    A read that starts at a time starts after the first record of that time.
    """
    client = connector.module("engines.metadata").MetadataClient
    original = client.offsets_for_times

    def offsets_for_times(self: Any, times: Any) -> Any:
        found = original(self, times)
        return {tp: None if offset is None else offset + 1 for tp, offset in found.items()}

    return [patch.object(client, "offsets_for_times", offsets_for_times)]


def position_is_beyond_the_stable_offset(connector: Connector) -> list[Any]:
    """
    A position beyond the last stable offset, as after a change of the isolation level, counts as
    one beyond the end of the log.
    """
    ends = connector.module("source.end_offsets").EndOffsets
    return [patch.object(ends, "_with_uncommitted", lambda _, __, latest: latest)]


def stale_end_of_a_run_is_kept(connector: Connector) -> list[Any]:
    """
    The end of an availableNow run, which a stale broker may have returned, is not requested again
    when it turns out to be before the checkpoint.
    """
    ends = connector.module("source.end_offsets").EndOffsets
    return [patch.object(ends, "confirm", lambda _, __, end: end)]


def start_at_a_time_moves(connector: Connector) -> list[Any]:
    """
    The start of a partition without a record at or after the start time stays ``latest``, which is
    resolved later: records that are written in between are skipped.
    """
    original = connector.module("source.offset_limits").resolve_start
    latest = connector.module("offsets").LATEST

    class Lookup:
        """
        Returns ``latest`` as the end of each partition, which is thus not resolved yet.
        """

        def __init__(self, source: Any) -> None:
            self.offsets_for_times = source.offsets_for_times

        def end_offsets(self, tps: Any) -> Any:
            return dict.fromkeys(tps, latest)

    def resolve_start(limit: Any, tps: Any, source: Any, *arguments: Any) -> Any:
        return original(limit, tps, Lookup(source), *arguments)

    modules = ("source.micro_batch_stream", "spark.batch_reader")
    return [
        patch.object(connector.module(name), "resolve_start", resolve_start) for name in modules
    ]


def known_names_are_not_confirmed(connector: Connector) -> list[Any]:
    """
    If brokers have no topic ids, a process that has read a topic of this name before trusts a
    single broker, which may be stale.
    """
    epochs = connector.module(f"{_WIRE}.network.last_seen_epochs").LastSeenEpochs
    check = connector.module(f"{_WIRE}.network.metadata_freshness").FreshnessCheck
    confirm, is_confirmed = epochs.confirm, check._is_confirmed

    def confirm_name(self: Any, cluster: Any, topic: Any) -> None:
        confirm(self, cluster, topic)
        if topic.topic_id is None and not topic.error_code:
            self._confirmed[cluster, topic.name] = None

    def is_known(self: Any, topic: Any) -> bool:
        return (self.cluster, topic.name) in self.seen._confirmed or is_confirmed(self, topic)

    return [
        patch.object(epochs, "confirm", confirm_name),
        patch.object(check, "_is_confirmed", is_known),
    ]


def requests_exceed_the_limit_of_responses(connector: Connector) -> list[Any]:
    """
    A task requests more than its connections accept in one response. Here the limit is 4 kB.
    """
    module = connector.module("settings.wire_config")

    def receive_limit(properties: Any) -> int:
        return max(4_000, int(properties.get("fetch.max.bytes", 0)) + 512)

    return [
        patch.object(module, "_receive_limit", receive_limit),
        patch.object(module.WireConfig, "max_fetch_bytes", property(_requested_bytes)),
    ]


def _requested_bytes(config: Any) -> Any:
    limits = (config.fetch_max_bytes, config.max_partition_fetch_bytes)
    return min([1 << 20, *(limit for limit in limits if limit is not None)])


FAULTS = {
    "recreation-is-not-noticed": Fault("changing-log", "recreation", recreation_is_not_noticed),
    "empty-response-is-a-gap": Fault("source", "lost", empty_response_is_a_gap),
    # With failOnDataLoss a loss is reported falsely; without failOnDataLoss records are skipped.
    "high-watermark-is-the-end": Fault("source", "data loss", high_watermark_is_the_end, "lost"),
    "aborted-records-are-read": Fault("source", "aborted read", aborted_records_are_read),
    "only-new-aborts-count": Fault("source", "aborted read", only_new_aborts_count),
    "stale-broker-is-believed": Fault("batch", "lost", stale_broker_is_believed),
    # With failOnDataLoss a loss is reported falsely; without failOnDataLoss records are skipped.
    "one-report-is-a-deletion": Fault(
        "changing-log", "data loss", one_report_is_a_deletion, "lost"
    ),
    "one-broker-plans": Fault("batch", "lost", one_broker_plans),
    "unknown-topic-counts-as-confirmation": Fault(
        "batch", "lost", unknown_topic_counts_as_confirmation
    ),
    "worker-keeps-its-leader": Fault("batch", "lost", worker_keeps_its_leader),
    "ranges-have-no-topic-id": Fault("batch", "mixed topics", ranges_have_no_topic_id),
    "topic-id-is-not-confirmed": Fault("batch", "mixed topics", topic_id_is_not_confirmed),
    "other-brokers-confirm-the-topic": Fault(
        "batch", "mixed topics", other_brokers_confirm_the_topic
    ),
    "added-partitions-are-not-read": Fault("batch", "lost", added_partitions_are_not_read),
    "memory-is-reused": Fault("source", "CORRUPT", memory_is_reused),
    "available-now-has-no-fixed-end": Fault(
        "source", "wrong end of a run", available_now_has_no_fixed_end
    ),
    "end-at-a-time-moves": Fault("batch", "outside the time range", end_at_a_time_moves),
    "records-of-one-time-are-skipped": Fault(
        "batch", "lost", records_of_one_time_are_skipped, "outside the time range"
    ),
    "aborted-records-hide-keys": Fault("batch", "lost", aborted_records_hide_keys),
    "second-pass-ends-early": Fault("batch", "lost", second_pass_ends_early),
    # With failOnDataLoss a start beyond the end is falsely reported as a loss.
    "start-is-resolved-again": Fault("source", "lost", start_is_resolved_again, "data loss"),
    "truncation-is-not-checked": Fault("changing-log", "lost", truncation_is_not_checked),
    "losses-are-not-reported": Fault("changing-log", "lost", losses_are_not_reported),
    "new-partitions-start-at-the-end": Fault(
        "changing-log", "lost", new_partitions_start_at_the_end
    ),
    "unfinished-batch-needs-its-topic": Fault(
        "changing-log", "stuck", unfinished_batch_needs_its_topic
    ),
    # With failOnDataLoss a loss is reported falsely; without failOnDataLoss records are read again.
    "position-is-beyond-the-stable-offset": Fault(
        "source", "data loss", position_is_beyond_the_stable_offset, "duplicate"
    ),
    "stale-end-of-a-run-is-kept": Fault(
        "source", "data loss", stale_end_of_a_run_is_kept, "duplicate"
    ),
    "start-at-a-time-moves": Fault("source", "wrong start", start_at_a_time_moves),
    "known-names-are-not-confirmed": Fault("batch", "lost", known_names_are_not_confirmed),
    "requests-exceed-the-limit-of-responses": Fault(
        "source", "stuck", requests_exceed_the_limit_of_responses
    ),
}
