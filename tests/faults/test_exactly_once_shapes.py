"""
Exactly-once streams of every shape, with drivers that die or pause between commits.

A driver dies, is paused or competes with a second driver between any two of its commits, which
proxies hold.
All faults are injected outside of the connector; a plain read_committed reader checks the result.
"""

from __future__ import annotations

import signal
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

import pytest
from tests.faults.jobs import kill_all, signal_all
from tests.faults.shaped_streams import Drivers, GatedCluster, ShapedStream
from tests.support.row_checker import Verdict

from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    DriversFactory = Callable[..., Drivers]
    Choose = Callable[[int], int]

pytestmark = pytest.mark.timeout(900)

SECONDS = 120.0
#: Without minPartitions a micro-batch as small as these is prefetched by the driver.
READS = {"prefetched": {}, "split": {"minPartitions": "4"}}
#: No transaction may time out while a driver is restarted on a loaded machine.
LONG = {"kafka.transaction.timeout.ms": "600000"}
#: The timeout of an abandoned transaction; on a loaded machine a micro-batch takes most of it.
SHORT = {"kafka.transaction.timeout.ms": "15000"}

STATELESS = (
    "copy",
    "repartition",
    "repartition_by_key",
    "repartition_by_setting",
    "coalesce",
)
INPUTS = ("union", "union_with_an_idle_topic", "files", "rate")
STATEFUL = ("windowed", "complete", "join")
#: Each run of a batch produces different rows, or assigns them to different tasks.
RANDOM = ("random", "random_repartition")
#: The queries of one driver.
SHAPES = {"stateless": STATELESS, "inputs": (*INPUTS, *RANDOM), "stateful": STATEFUL}
#: One of each kind: the same rows after a shuffle, several inputs, other rows each time.
FEW = ("repartition", "union", "random_repartition")


def none(_: int) -> int:
    return 0


def one(total: int) -> int:
    return min(1, total)


def all_but_one(total: int) -> int:
    return max(total - 1, 0)


def everything(total: int) -> int:
    return total


@pytest.fixture(scope="module")
def cluster() -> Iterator[GatedCluster]:
    """
    One broker that clients reach through a proxy.
    """
    with GatedCluster() as new_cluster:
        yield new_cluster


@pytest.fixture
def drivers(
    cluster: GatedCluster, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[DriversFactory]:
    """
    Return a function that sets up queries which one driver after another runs.
    """

    def make(
        shapes: Sequence[str],
        batches: int,
        options: dict[str, str] = LONG,
        read: str = "prefetched",
    ) -> Drivers:
        return new_drivers(
            cluster, tmp_path, request.node.name, shapes, batches, options, READS[read]
        )

    yield make
    cluster.gate.close()


def new_drivers(
    cluster: GatedCluster,
    folder: Path,
    name: str,
    shapes: Sequence[str],
    batches: int,
    sink: dict[str, str],
    source: dict[str, str],
) -> Drivers:
    """
    Return queries with new topics, not started yet.
    """
    streams = []
    for shape in shapes:
        topic = "".join(c if c.isalnum() else "-" for c in f"{name}-{shape}")
        shape_folder = folder / shape
        streams.append(
            ShapedStream(cluster, shape, shape_folder, topic, batches, dict(source), dict(sink))
        )
    return Drivers(cluster, streams, folder)


def await_ended(drivers: Drivers) -> None:
    """
    Return once the coordinator has aborted the open transactions.
    """
    for stream in drivers.streams:
        wait_until(partial(_open_ids, stream), SECONDS)


def _open_ids(stream: ShapedStream) -> str | None:
    return ", ".join(stream.open_ids()) or None


@pytest.mark.soak
def test_a_driver_dies_between_commits(drivers: DriversFactory) -> None:
    """
    In queries with a shuffle and with a union, the driver dies when one task of a prefetched batch
    is committed and the others are not; the next driver completes the batch.
    """
    writes = drivers(["repartition", "union"], batches=2)
    writes.killed(0, one)
    writes.run()

    writes.verify()


@pytest.mark.soak
@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("group", SHAPES)
def test_drivers_die_one_after_another(drivers: DriversFactory, group: str, read: str) -> None:
    """
    Four drivers die, each in a later batch than its predecessor: with none, one, all but one and
    all of the batch's tasks committed. The last driver completes everything.
    """
    writes = drivers(SHAPES[group], batches=5, read=read)
    for batch, choose in enumerate((none, one, all_but_one, everything)):
        writes.killed(batch, choose)
    writes.run()

    writes.verify()


@pytest.mark.soak
def test_a_batch_loses_three_drivers(drivers: DriversFactory) -> None:
    """
    Three drivers die in one batch, each after one more task is committed; the fourth completes the
    batch.
    """
    writes = drivers(["repartition", "windowed", "random_repartition"], batches=3)
    for _ in range(3):
        writes.killed(1, one)
    writes.run()

    writes.verify()


@pytest.mark.soak
@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize(
    "shapes", [STATELESS, INPUTS, STATEFUL], ids=["stateless", "inputs", "stateful"]
)
def test_a_driver_restarts_after_the_transaction_timeout(
    drivers: DriversFactory, shapes: Sequence[str], read: str
) -> None:
    """
    If a driver restarts after the coordinator has aborted open transactions, and its tasks have the
    same rows again, only the missing rows are added.
    """
    writes = drivers(shapes, batches=2, options=SHORT, read=read)
    writes.killed(0, one)
    await_ended(writes)
    writes.run()

    writes.verify()


@pytest.mark.soak
def test_different_rows_after_the_transaction_timeout_are_refused(drivers: DriversFactory) -> None:
    """
    If tasks have different rows each time, and a part is committed, the query fails with a named
    error at each start; the error names the visible rows, and nothing is duplicated.
    """
    writes = drivers(RANDOM, batches=2, options=SHORT, read="split")
    writes.killed(0, one)
    await_ended(writes)
    before = {stream.shape: stream.verdict() for stream in writes.streams}
    for _ in range(2):
        for stream in writes.streams:
            stream.forget_error()
        writes.run()
        for stream in writes.streams:
            assert_refused(stream, before[stream.shape])


def assert_refused(stream: ShapedStream, before: Verdict) -> None:
    """
    Fail unless the query has ended with an error that names the visible rows, which are unchanged.
    """
    error, now = stream.error(), stream.verdict()
    assert error is not None, f"{stream.shape}: {now}"
    assert "EXACTLY_ONCE_REPLAY_DIFFERS" in error, error
    assert "visible" in error, error
    assert now == before == Verdict(lost=before.lost), f"{stream.shape}: {now}"


SETTINGS = {
    "more shuffle partitions": {"spark.sql.shuffle.partitions": "7"},
    "fewer shuffle partitions": {"spark.sql.shuffle.partitions": "2"},
    "one core": {"spark.master": "local[1]"},
    "more cores": {"spark.master": "local[6]"},
}


@pytest.mark.soak
@pytest.mark.parametrize("setting", SETTINGS)
def test_a_driver_with_other_settings(drivers: DriversFactory, setting: str) -> None:
    """
    A driver with other settings, whose tasks may have other rows, completes the batch of its
    predecessor before the transaction timeout.
    """
    writes = drivers(["repartition_by_setting", "files", "windowed"], batches=2)
    writes.killed(0, one)
    writes.conf = SETTINGS[setting]
    writes.run()

    writes.verify()


@pytest.mark.soak
@pytest.mark.parametrize("setting", SETTINGS)
def test_other_settings_after_the_transaction_timeout(
    drivers: DriversFactory, setting: str
) -> None:
    """
    If a driver with other settings starts after the transaction timeout, either the output is
    complete, because its tasks have the same rows, or the query fails.
    """
    writes = drivers(["repartition_by_setting", "files"], batches=2, options=SHORT)
    writes.killed(0, one)
    await_ended(writes)
    before = {stream.shape: stream.verdict() for stream in writes.streams}
    writes.conf = SETTINGS[setting]
    writes.run()

    for stream in writes.streams:
        if stream.error() is None:
            assert stream.problem() is None
        else:
            assert_refused(stream, before[stream.shape])


@pytest.mark.soak
@pytest.mark.parametrize("choose", [none, one, everything])
def test_a_paused_driver_resumes(drivers: DriversFactory, choose: Choose) -> None:
    """
    While a driver is paused between its commits, another one completes everything; late requests of
    the first one, and its actions after resuming, change nothing.
    """
    writes = drivers(FEW, batches=3)
    with ExitStack() as started:
        sleeper, holds = writes.with_held_commits(1, choose)
        started.callback(kill_all, sleeper)
        signal_all(sleeper, signal.SIGSTOP)
        writes.cluster.gate.open()
        writes.run()
        writes.verify()
        for hold in holds:
            hold.forward()
        signal_all(sleeper, signal.SIGCONT)
        writes.wait(sleeper)
        for stream in writes.streams:
            stream.forget_error()

    writes.verify()


@pytest.mark.soak
@pytest.mark.parametrize("choose", [none, one])
def test_two_drivers_at_once(drivers: DriversFactory, choose: Choose) -> None:
    """
    A paused driver resumes when another one is about to commit the same batch; if both give up, a
    third one completes it.
    """
    writes = drivers(FEW, batches=3)
    with ExitStack() as started:
        first, sent = writes.with_held_commits(1, choose)
        started.callback(kill_all, first)
        signal_all(first, signal.SIGSTOP)
        second, second_held = writes.with_held_commits(1, none)
        started.callback(kill_all, second)
        writes.cluster.gate.open()
        signal_all(first, signal.SIGCONT)
        for hold in (*sent, *second_held):
            hold.forward()
        exit_codes = [writes.wait(job) for job in (first, second)]
    for stream in writes.streams:
        stream.forget_error()
    if 0 not in exit_codes:
        writes.run()

    writes.verify()


@pytest.mark.soak
def test_late_commits(drivers: DriversFactory) -> None:
    """
    The last requests of a dead driver arrive while the next driver commits the same batch, and each
    row is still visible once.
    """
    writes = drivers(FEW, batches=3)
    dead, late = writes.with_held_commits(1, one)
    kill_all(dead)
    job, holds = writes.with_held_commits(1, none)
    try:
        writes.cluster.gate.open()
        for hold in (*late, *holds):
            hold.forward()
        writes.wait(job)
    finally:
        kill_all(job)

    writes.verify()


@pytest.mark.soak
def test_three_coordinators(tmp_path: Path) -> None:
    """
    The commits of a batch go to three brokers, and the driver dies after one of them; the next one
    completes the batch.
    """
    with GatedCluster(brokers=3) as three:
        writes = new_drivers(three, tmp_path, "three", FEW, 3, LONG, {})
        writes.killed(1, one)
        writes.run()

        writes.verify()
