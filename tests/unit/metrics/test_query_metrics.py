"""
The state of queries after Spark's events.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.progress_events import REPLAYED_BATCH, progress

from pyspark_pykafka.metrics.progress_event import Batch, parse_batch
from pyspark_pykafka.metrics.query_metrics import MAX_ENDED, QueryMetrics, QueryPartition
from pyspark_pykafka.offsets import TopicPartition

TP = TopicPartition("t", 0)
READ = QueryPartition("q", 0, TP, None)


def metrics_of(*texts: str, max_partitions: int = 100) -> QueryMetrics:
    """
    Return the metrics of a query after these progress events, ten seconds apart.
    """
    metrics = QueryMetrics(max_partitions)
    metrics.start("q", "run", "flights", 0.0)
    for number, text in enumerate(texts, 1):
        metrics.add(parse_batch(text), 10.0 * number)
    return metrics


def test_batches_add_up() -> None:
    """
    Rows, offsets and durations are summed; position, end and rates are those of the last batch.
    """
    metrics = metrics_of(
        progress({"t": {"0": 7}}, start={"t": {"0": 3}}, latest={"t": {"0": 9}}),
        progress({"t": {"0": 9}}, start={"t": {"0": 7}}, latest={"t": {"0": 9}}, batch_id=1),
    )

    (query,) = metrics.snapshot(25.0).queries
    assert (query.batches, query.batch_id, query.replays, query.starts) == (2, 1, 0, 1)
    assert query.total_seconds["triggerExecution"] == pytest.approx(3.0)
    assert query.sources[0].rows == 20
    (partition,) = query.partitions
    assert (partition.position, partition.end, partition.lag) == (9, 9, 0)
    assert (partition.read, partition.lag_seconds) == (6, 0.0)


def test_lag_grows_with_time() -> None:
    """
    An unread record ages while the query is busy: the lag in seconds is that of the snapshot.
    """
    metrics = metrics_of(
        progress({"t": {"0": 7}}, start={"t": {"0": 3}}, latest={"t": {"0": 7}}),
        progress({"t": {"0": 7}}, start={"t": {"0": 7}}, latest={"t": {"0": 8}}),
    )

    (query,) = metrics.snapshot(118.8).queries
    assert query.lag == 1
    # The latest offsets were read 1.2 seconds before the end of the batch, at 18.8.
    assert query.lag_seconds == pytest.approx(100.0)


def test_lag_is_unknown_without_latest_offsets() -> None:
    """
    Before Spark 4.2 the progress has no latest offsets: the lag is unknown, and not zero.
    """
    (query,) = metrics_of(progress({"t": {"0": 7}})).snapshot(20.0).queries

    assert query.lag is None
    assert query.lag_seconds is None


@pytest.mark.parametrize("planned_end", [10, 1000])
def test_lag_is_unknown_after_a_replay_up_to_the_last_known_end(planned_end: int) -> None:
    """
    Spark reports no latest offsets for a replayed batch: how many records have arrived since the
    outage began is unknown until the next batch or the next answer of the brokers.
    """
    metrics = metrics_of(progress({"t": {"0": 10}}, latest={"t": {"0": planned_end}}))
    metrics.end("q", "run", ("Error", "text"), 15.0)
    metrics.start("q", "second", "flights", 7200.0)
    replayed = progress(
        {"t": {"0": 1000}}, start={"t": {"0": 10}}, phases=REPLAYED_BATCH, run_id="second"
    )
    metrics.add(parse_batch(replayed), 7300.0)

    (query,) = metrics.snapshot(7300.0).queries
    assert (query.partitions[0].position, query.partitions[0].end) == (1000, None)
    assert (query.lag, query.lag_seconds) == (None, None)
    metrics.observe_ends({READ: 5000}, 7310.0)
    (query,) = metrics.snapshot(7320.0).queries
    assert (query.partitions[0].end, query.lag) == (5000, 4000)


def test_known_backlog_ages_while_the_query_fails() -> None:
    """
    A query that fails again and again has at least the lag that it had before, and its lag in
    seconds grows.
    """
    metrics = metrics_of(progress({"t": {"0": 10}}, latest={"t": {"0": 30}}))
    for run in ("second", "third"):
        metrics.start("q", run, "flights", 20.0)

    (query,) = metrics.snapshot(108.8).queries
    assert (query.lag, query.lag_seconds) == (20, 100.0)


def test_lag_is_unknown_while_the_brokers_do_not_answer() -> None:
    """
    Ends that the brokers returned before an outage are old: the log may have grown since.
    """
    metrics = metrics_of(progress({"t": {"0": 10}}))
    metrics.observe_ends({READ: 10}, 20.0)
    assert metrics.snapshot(20.0).queries[0].lag == 0

    metrics.expire_ends(lambda tp: tp != TP)
    assert metrics.snapshot(30.0).queries[0].lag == 0
    metrics.expire_ends(lambda tp: tp == TP)
    assert metrics.snapshot(30.0).queries[0].lag is None


def test_lag_after_the_clock_was_set_back() -> None:
    """
    A clock that was set back by an hour does not hide new records, nor the age of old ones.
    """
    metrics = QueryMetrics(100)
    metrics.add(parse_batch(progress({"t": {"0": 10}}, latest={"t": {"0": 100}})), 7200.0)
    metrics.add(
        parse_batch(progress({"t": {"0": 100}}, latest={"t": {"0": 100_000}}, batch_id=1)), 3610.0
    )

    (query,) = metrics.snapshot(3620.0).queries
    assert query.lag == 99_900
    assert query.lag_seconds == pytest.approx(11.2)


def test_ends_from_brokers_replace_those_of_the_progress() -> None:
    """
    End offsets that the brokers returned after the last planning replace those of the progress.
    """
    metrics = metrics_of(progress({"t": {"0": 7}}, latest={"t": {"0": 7}}))
    metrics.observe_ends({READ: 17}, 30.0)

    (query,) = metrics.snapshot(30.0).queries
    assert query.lag == 10
    assert query.lag_seconds == pytest.approx(30.0 - (8.8 + 2.12), abs=0.01)


def test_replay_is_the_first_batch_of_a_run_that_it_did_not_plan() -> None:
    """
    A replayed batch counts once, and only as the first batch of a run.
    """
    replayed = progress({"t": {"0": 7}}, phases=REPLAYED_BATCH)
    metrics = metrics_of(replayed, replayed)

    assert metrics.snapshot(20.0).queries[0].replays == 1
    metrics.start("q", "second", "flights", 30.0)
    metrics.add(lost("second", 0, phases=REPLAYED_BATCH), 40.0)
    assert metrics.snapshot(40.0).queries[0].replays == 2


def test_lost_offsets_are_counted_over_restarts() -> None:
    """
    Spark's progress counts lost offsets from zero in each run; the metric adds up all runs.
    """
    metrics = QueryMetrics(100)
    metrics.start("q", "first", "flights", 0.0)
    metrics.add(lost("first", 2), 10.0)
    metrics.add(lost("first", 5), 20.0)
    metrics.start("q", "second", "flights", 30.0)
    metrics.add(lost("second", 1), 40.0)

    assert metrics.snapshot(40.0).queries[0].partitions[0].lost == 6


def lost(run_id: str, count: int, **fields: Any) -> Batch:
    """
    Return a micro-batch of a run that has lost ``count`` offsets since its start.
    """
    latest = {"t": {"0": 7}, "@lost": {"t": {"0": count}}}
    return parse_batch(progress({"t": {"0": 7}}, latest=latest, run_id=run_id, **fields))


def test_losses_of_an_earlier_run_count_once() -> None:
    """
    The last batch of a run, reported after the next run has started, adds only what that run has
    lost since its last report.
    """
    metrics = QueryMetrics(100)
    metrics.start("q", "first", "flights", 0.0)
    metrics.add(lost("first", 100), 10.0)
    metrics.start("q", "second", "flights", 20.0)
    metrics.add(lost("first", 103), 21.0)
    metrics.end("q", "first", None, 22.0)
    metrics.add(lost("second", 4), 30.0)

    assert metrics.snapshot(40.0).queries[0].partitions[0].lost == 107


def test_data_losses_are_counted_over_restarts() -> None:
    """
    Losses whose records cannot be counted are summed by condition over all runs, also if a run is
    reported late.
    """

    def losses(run_id: str, **counts: int) -> Batch:
        latest = {"t": {"0": 7}, "@losses": counts}
        return parse_batch(progress({"t": {"0": 7}}, latest=latest, run_id=run_id))

    metrics = QueryMetrics(100)
    metrics.start("q", "first", "flights", 0.0)
    metrics.add(losses("first", DELETED=1), 10.0)
    metrics.start("q", "second", "flights", 20.0)
    metrics.add(losses("first", DELETED=2, RECREATED=1), 21.0)
    metrics.add(losses("second", DELETED=1), 30.0)

    (query,) = metrics.snapshot(30.0).queries
    assert query.losses == {(0, "DELETED"): 3, (0, "RECREATED"): 1}


def test_end_of_an_earlier_run_does_not_end_the_query() -> None:
    """
    The failure of a run, reported after the next run has started, is counted; the query runs.
    """
    metrics = QueryMetrics(100)
    metrics.start("q", "first", "flights", 0.0)
    metrics.start("q", "second", "flights", 10.0)
    metrics.end("q", "first", ("Error", "text"), 11.0)

    (query,) = metrics.snapshot(20.0).queries
    assert (query.is_running, query.failures, query.starts) == (True, {"Error": 1}, 2)
    metrics.end("q", "second", None, 30.0)
    assert not metrics.snapshot(40.0).queries[0].is_running


def test_replay_after_a_late_batch_of_the_earlier_run_counts() -> None:
    """
    The last batch of a run, reported after the next run has started, is not that run's first batch.
    """
    metrics = QueryMetrics(100)
    metrics.start("q", "first", "flights", 0.0)
    metrics.start("q", "second", "flights", 10.0)
    metrics.add(lost("first", 0), 11.0)
    metrics.end("q", "first", ("Error", "text"), 12.0)
    metrics.add(lost("second", 0, phases=REPLAYED_BATCH), 20.0)

    (query,) = metrics.snapshot(20.0).queries
    assert (query.batches, query.replays) == (2, 1)


def test_query_has_failed_if_its_last_run_has() -> None:
    """
    A restart, and a later end without an error, end the failure; a late end of an earlier run does
    not begin a failure.
    """
    metrics = QueryMetrics(100)
    failed = []
    error = ("Error", "text")
    metrics.start("q", "first", "flights", 0.0)
    metrics.end("q", "first", error, 1.0)
    failed.append(metrics.snapshot(1.0).queries[0].has_failed)
    metrics.start("q", "second", "flights", 2.0)
    failed.append(metrics.snapshot(2.0).queries[0].has_failed)
    metrics.start("q", "third", "flights", 3.0)
    metrics.end("q", "second", error, 4.0)
    failed.append(metrics.snapshot(4.0).queries[0].has_failed)
    metrics.end("q", "third", None, 5.0)
    failed.append(metrics.snapshot(5.0).queries[0].has_failed)

    assert failed == [True, False, False, False]
    assert metrics.snapshot(5.0).queries[0].failures == {"Error": 2}


def test_run_that_started_before_the_listener_was_added() -> None:
    """
    A query without a start event runs from its first batch to its end.
    """
    metrics = QueryMetrics(100)
    metrics.add(lost("run", 0), 10.0)
    assert metrics.snapshot(10.0).queries[0].is_running

    metrics.end("q", "run", None, 20.0)
    assert not metrics.snapshot(20.0).queries[0].is_running


def test_failures_are_counted_by_a_bounded_number_of_names() -> None:
    """
    Failures with more than twenty different names are counted under `other`; a run that was stopped
    is not counted.
    """
    metrics = metrics_of()
    for number in range(30):
        metrics.start("q", f"run {number}", "flights", 0.0)
        metrics.end("q", f"run {number}", (f"Error{number}", "text"), 1.0)
    metrics.start("q", "last", "flights", 2.0)
    metrics.end("q", "last", None, 2.0)

    (query,) = metrics.snapshot(3.0).queries
    assert len(query.failures) == 21
    assert query.failures["other"] == 10
    assert (query.last_error, query.is_running) == ("text", False)


def test_long_ended_queries_are_forgotten() -> None:
    """
    Of many queries, only the running ones and those that ended last are kept.
    """
    metrics = metrics_of()
    for number in range(MAX_ENDED + 5):
        metrics.start(f"ended-{number}", "run", "", 1.0)
        metrics.end(f"ended-{number}", "run", None, 2.0)

    ids = [query.id for query in metrics.snapshot(3.0).queries]
    assert ids == ["q", *(f"ended-{number}" for number in range(5, MAX_ENDED + 5))]


def test_dead_letters_of_no_query_are_kept() -> None:
    """
    Dead letters that were counted outside of a query are kept, however many queries have ended.
    """
    metrics = metrics_of()
    metrics.count_dead_letters("", [TP])
    for number in range(MAX_ENDED + 5):
        metrics.start(f"ended-{number}", "run", "", 1.0)
        metrics.end(f"ended-{number}", "run", None, 2.0)

    queries = {query.id: query for query in metrics.snapshot(3.0).queries}
    assert len(queries) == MAX_ENDED + 2
    assert queries[""].dead_letters == {("t", "0"): 1}


def test_partitions_that_are_not_read_any_more_are_dropped() -> None:
    """
    A partition that is not in the latest progress of the query is dropped.
    """
    metrics = metrics_of(
        progress({"t": {"0": 7}, "u": {"0": 1}}), progress({"t": {"0": 7}}, batch_id=1)
    )

    assert [partition.topic for partition in metrics.snapshot(20.0).queries[0].partitions] == ["t"]


def test_old_backlog_is_dated_once() -> None:
    """
    A backlog from before the first observation is dated once, by its first record's timestamp.
    """
    metrics = metrics_of(progress({"t": {"0": 7}}, latest={"t": {"0": 107}}))

    assert metrics.partitions(lambda tp: tp == TP) == [READ]
    assert metrics.partitions(lambda tp: tp != TP) == []
    assert metrics.without_arrival([READ]) == {READ: 7}
    assert metrics.without_arrival([READ._replace(source=1)]) == {}
    metrics.record_arrivals({READ: (7, -3600.0)})
    assert metrics.without_arrival([READ]) == {}
    assert metrics.snapshot(0.0).queries[0].lag_seconds == pytest.approx(3600.0)


def test_end_offsets_of_a_recreated_topic_start_a_new_history() -> None:
    """
    When a query reads a topic that was recreated, its lag is that of the new topic, however long
    the log of the old one was.
    """
    old, new = ({"@topicIds": {"t": topic_id}} for topic_id in ("old", "new"))
    metrics = metrics_of(
        progress({"t": {"0": 7}, **old}, latest={"t": {"0": 9}}),
        progress({"t": {"0": 3}, **new}, batch_id=1),
    )

    (query,) = metrics.snapshot(30.0).queries
    assert (query.partitions[0].position, query.lag) == (3, None)
    metrics.observe_ends({READ._replace(topic_id="old"): 90}, 30.0)
    metrics.observe_ends({READ._replace(topic_id="new"): 10}, 40.0)
    (query,) = metrics.snapshot(100.0).queries
    assert (query.lag, query.lag_seconds) == (7, 60.0)


def test_idle_query_is_alive() -> None:
    """
    An idle trigger moves the time of the last event, but not the time of the last batch.
    """
    metrics = metrics_of(progress({"t": {"0": 7}}))
    metrics.record_idle("q", 50.0)
    metrics.record_idle("unknown", 50.0)

    (query,) = metrics.snapshot(60.0).queries
    assert (query.last_batch_time, query.last_event_time) == (10.0, 50.0)


def test_many_partitions_are_summed_by_topic() -> None:
    """
    A query with too many partitions has one entry for each topic: sums, and the longest lag in
    seconds; with too many topics it has one entry.
    """
    ends = {topic: {str(p): 10 for p in range(50)} for topic in "abc"}
    latest = {topic: {str(p): 10 + p for p in range(50)} for topic in "abc"}
    texts = (progress(ends, start=ends, latest=ends), progress(ends, start=ends, latest=latest))

    (query,) = metrics_of(*texts, max_partitions=10).snapshot(30.0).queries
    assert [
        (partition.topic, partition.partition, partition.lag) for partition in query.partitions
    ] == [(topic, "", sum(range(50))) for topic in "abc"]
    (entry,) = metrics_of(*texts, max_partitions=2).snapshot(30.0).queries[0].partitions
    assert (entry.topic, entry.partition, entry.lag) == ("", "", 3 * sum(range(50)))
    assert entry.lag_seconds == max(partition.lag_seconds or 0 for partition in query.partitions)
    assert query.lag == entry.lag


def test_dead_letters_are_summed_by_topic() -> None:
    """
    Dead letters from too many partitions are counted by topic from then on; the total still
    includes all of them.
    """
    metrics = metrics_of(max_partitions=3)
    metrics.count_dead_letters("q", [TopicPartition("t", p) for p in range(3)])
    assert len(metrics.snapshot(0.0).queries[0].dead_letters) == 3

    metrics.count_dead_letters("q", [TopicPartition("t", p) for p in range(5)])
    (query,) = metrics.snapshot(0.0).queries
    assert query.dead_letters == {("t", ""): 5}
    assert query.dead_letter_count == 8


def counters(metrics: QueryMetrics) -> dict[tuple[str, str], tuple[int, int]]:
    """
    Return the offsets that were read and lost, by the labels of their series.
    """
    partitions = metrics.snapshot(0.0).queries[0].partitions
    return {
        (partition.topic, partition.partition): (partition.read, partition.lost)
        for partition in partitions
    }


def read_and_lost(partitions: dict[str, int], lost: int, *, batch_id: int) -> Batch:
    """
    Return a batch that reads 5 offsets of each partition of these topics. ``lost`` is the number of
    offsets that each first partition has lost since the start of the run.
    """
    start, end = (
        {topic: {str(p): offset for p in range(count)} for topic, count in partitions.items()}
        for offset in (5 * batch_id, 5 * batch_id + 5)
    )
    latest = {**end, "@lost": {topic: {"0": lost} for topic in partitions}}
    return parse_batch(progress(end, start=start, latest=latest, batch_id=batch_id))


def test_counter_of_a_group_does_not_fall_when_a_partition_leaves() -> None:
    """
    The series of a topic keeps the counts of its deleted partitions, and the series of all topics
    keeps the counts of deleted topics: Prometheus would take a lower value for a restart of the
    counter.
    """
    metrics = QueryMetrics(max_partitions=2)
    metrics.add(read_and_lost({"a": 1, "b": 1, "c": 1}, 4, batch_id=0), 10.0)
    assert counters(metrics) == {("", ""): (15, 12)}

    metrics.add(read_and_lost({"a": 1}, 5, batch_id=1), 20.0)

    assert counters(metrics) == {("", ""): (20, 13)}


def test_series_that_replace_others_begin_at_zero() -> None:
    """
    When a query has too many partitions for a series each, the series of its topics count from that
    batch on, so that earlier losses are not taken for new ones. The grouping stays.
    """
    metrics = QueryMetrics(max_partitions=2)
    metrics.add(read_and_lost({"a": 2}, 4, batch_id=0), 10.0)
    assert counters(metrics) == {("a", "0"): (5, 4), ("a", "1"): (5, 0)}

    metrics.add(read_and_lost({"a": 2, "b": 1}, 4, batch_id=1), 20.0)
    assert counters(metrics) == {("a", ""): (10, 0), ("b", ""): (5, 4)}
    metrics.add(read_and_lost({"a": 1}, 6, batch_id=2), 30.0)
    assert counters(metrics) == {("a", ""): (15, 2)}


def test_losses_of_a_topic_that_was_deleted_stay_in_the_total() -> None:
    """
    The series of a partition ends with the partition; the query has lost its offsets nevertheless.
    """
    metrics = QueryMetrics(max_partitions=10)
    metrics.add(read_and_lost({"a": 1, "b": 1}, 4, batch_id=0), 10.0)
    metrics.add(read_and_lost({"a": 1}, 4, batch_id=1), 20.0)

    assert counters(metrics) == {("a", "0"): (10, 4)}
    assert metrics.snapshot(0.0).queries[0].lost == 8


TOPICS = st.dictionaries(st.sampled_from("abc"), st.integers(1, 3), min_size=1)


@given(st.lists(TOPICS, min_size=1, max_size=8), st.integers(1, 6))
def test_no_counter_falls_while_its_series_exists(
    batches: list[dict[str, int]], max_partitions: int
) -> None:
    """
    Whatever topics and partitions come and go, no series falls from one scrape to the next, a
    series that replaces others counts from that batch on, and there are at most ``max_partitions``
    series.
    """
    metrics = QueryMetrics(max_partitions)
    before: dict[tuple[str, str], tuple[int, int]] = {}
    for batch_id, topics in enumerate(batches):
        metrics.add(read_and_lost(topics, batch_id, batch_id=batch_id), 10.0 * batch_id)
        now = counters(metrics)
        assert len(now) <= max_partitions
        read_in_batch = 5 * sum(topics.values())
        for labels, (read, lost) in now.items():
            read_before, lost_before = before.get(labels, (0, 0))
            assert read_before <= read <= read_before + read_in_batch
            assert lost_before <= lost
        before = now
