"""
Exactly once for queries of every shape, whatever lies between source and sink.

A driver dies, sleeps or has a rival between any two of its commits, which proxies hold. What
happens, happens outside of the connector; a plain reader of committed records looks at the end.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
from tests.faults.jobs import kill_all, stop_all
from tests.faults.shaped_streams import DETERMINISTIC, SHAPES, GatedCluster, ShapedStream
from tests.support.row_checker import Verdict

from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.timeout(600)

SECONDS = 120.0
#: Without minPartitions a micro-batch as small as these is prefetched by the driver.
READS = {"prefetched": {}, "split": {"minPartitions": "4"}}
#: No transaction may end by itself while a driver is started anew on a loaded machine.
LONG = {"kafka.transaction.timeout.ms": "240000"}
#: How long a transaction may be open that nobody will end; a loaded machine needs most of it.
SHORT = {"kafka.transaction.timeout.ms": "12000"}
DIFFERS = "EXACTLY_ONCE_REPLAY_DIFFERS"


@pytest.fixture(scope="module")
def cluster() -> Iterator[GatedCluster]:
    """
    One broker that clients reach through a proxy.
    """
    with GatedCluster() as made:
        yield made


@pytest.fixture
def stream(
    cluster: GatedCluster, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[..., ShapedStream]]:
    """
    Return the way to make a stream whose name is the test's.
    """
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)

    def make(
        shape: str, batches: int, options: dict[str, str] = LONG, read: str = "prefetched"
    ) -> ShapedStream:
        return ShapedStream(
            cluster, shape, tmp_path, name, batches, dict(READS[read]), dict(options)
        )

    yield make
    cluster.gate.close()


def none(_: int) -> int:
    return 0


def one(of: int) -> int:
    return min(1, of)


@pytest.mark.parametrize("shape", ["repartition", "union"])
def test_a_driver_that_dies_between_commits(
    stream: Callable[..., ShapedStream], shape: str
) -> None:
    """
    A driver dies when one task of a prefetched batch is committed and the others are not; the next
    driver brings the batch to its end.
    """
    made = stream(shape, batches=2)
    made.killed(0, one)
    made.completed()

    made.verify()


@pytest.mark.soak
@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("shape", SHAPES)
def test_drivers_that_die_one_after_another(
    stream: Callable[..., ShapedStream], shape: str, read: str
) -> None:
    """
    Drivers die before the first commit of a batch, after the first of the next one, before the
    last, and after it; the last driver brings all to its end.
    """
    made = stream(shape, batches=5, read=read)
    made.killed(0, none)
    total = made.transactions
    for batch, count in enumerate(sorted({1, max(total - 1, 1), total}), start=1):
        made.killed(batch, lambda n, count=count: min(count, n))
    made.completed()

    made.verify()


@pytest.mark.soak
@pytest.mark.parametrize("shape", ["repartition", "windowed", "random_repartition"])
def test_a_batch_that_loses_its_driver_again_and_again(
    stream: Callable[..., ShapedStream], shape: str
) -> None:
    """
    Three drivers die in one batch, each when one task more is committed.
    """
    made = stream(shape, batches=3)
    for _ in range(3):
        made.killed(1, one)
    made.completed()

    made.verify()


@pytest.mark.soak
@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("shape", [shape for shape in DETERMINISTIC if shape != "rate"])
def test_a_driver_that_comes_after_the_transactions_time(
    stream: Callable[..., ShapedStream], shape: str, read: str
) -> None:
    """
    The next driver comes when the coordinator has aborted what was not committed; the tasks have
    the same rows again, and those that are missing are added.
    """
    made = stream(shape, batches=2, options=SHORT, read=read)
    made.killed(0, one)
    made.await_ended()
    made.completed()

    made.verify()


@pytest.mark.soak
@pytest.mark.parametrize("shape", ["random", "random_repartition"])
def test_other_rows_after_the_transactions_time_are_refused(
    stream: Callable[..., ShapedStream], shape: str
) -> None:
    """
    Where tasks have other rows each time, and a part is committed for good, the query is refused by
    name, again and again; what is visible is told, and nothing is doubled.
    """
    made = stream(shape, batches=2, options=SHORT, read="split")
    made.killed(0, one)
    made.await_ended()
    for _ in range(2):
        assert_refused(made)


def assert_refused(made: ShapedStream) -> None:
    """
    Fail unless the query ends with an error that says what is visible, and leaves it as it is.
    """
    before = made.verdict()
    assert made.run() == 1, made.verdict()
    assert DIFFERS in made.log()
    assert "visible" in made.log()
    assert made.verdict() == before
    assert before == Verdict(lost=before.lost), before


SETTINGS = {
    "more shuffle partitions": {"spark.sql.shuffle.partitions": "7"},
    "fewer shuffle partitions": {"spark.sql.shuffle.partitions": "2"},
    "one core": {"spark.master": "local[1]"},
    "more cores": {"spark.master": "local[6]"},
}


@pytest.mark.soak
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("shape", ["repartition_by_setting", "files", "windowed"])
def test_a_driver_with_other_settings(
    stream: Callable[..., ShapedStream], shape: str, setting: str
) -> None:
    """
    The next driver has other settings, so that its tasks may have other rows; within the
    transactions' time that changes nothing.
    """
    made = stream(shape, batches=2)
    made.killed(0, one)
    made.conf = SETTINGS[setting]
    made.completed()

    made.verify()


@pytest.mark.soak
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("shape", ["repartition_by_setting", "files"])
def test_other_settings_after_the_transactions_time(
    stream: Callable[..., ShapedStream], shape: str, setting: str
) -> None:
    """
    The next driver has other settings, and comes too late: either its tasks have the same rows all
    the same, or it is refused.
    """
    made = stream(shape, batches=2, options=SHORT)
    made.killed(0, one)
    made.await_ended()
    made.conf = SETTINGS[setting]
    if made.run() == 0:
        made.verify()
    else:
        assert_refused(made)


@pytest.mark.soak
@pytest.mark.parametrize("count", [none, one])
@pytest.mark.parametrize("shape", ["repartition", "union", "random_repartition"])
def test_a_driver_that_sleeps_and_wakes(
    stream: Callable[..., ShapedStream], shape: str, count: Callable[[int], int]
) -> None:
    """
    While a driver is paused between its commits another one does all; what the first one has sent,
    and does when it wakes, changes nothing.
    """
    made = stream(shape, batches=3)
    sleeper, hold = made.held(1, count)
    try:
        stop_all(sleeper, signal.SIGSTOP)
        made.cluster.gate.open()
        made.completed()
        hold.forward()
        stop_all(sleeper, signal.SIGCONT)
        made.wait(sleeper)
    finally:
        kill_all(sleeper)

    made.verify()


@pytest.mark.soak
@pytest.mark.parametrize("count", [none, one])
@pytest.mark.parametrize("shape", ["repartition", "union", "random_repartition"])
def test_two_drivers_at_once(
    stream: Callable[..., ShapedStream], shape: str, count: Callable[[int], int]
) -> None:
    """
    A paused driver wakes when another one is about to commit the same batch; if both give up, a
    third one brings it to its end.
    """
    made = stream(shape, batches=3)
    first, hold = made.held(1, count)
    second, ended = None, []
    try:
        stop_all(first, signal.SIGSTOP)
        second, other = made.held(1, none)
        made.cluster.gate.open()
        stop_all(first, signal.SIGCONT)
        hold.forward()
        other.forward()
        ended = [made.wait(job) for job in (first, second)]
    finally:
        for job in filter(None, (first, second)):
            kill_all(job)
    if 0 not in ended:
        made.completed()

    made.verify()


@pytest.mark.soak
@pytest.mark.parametrize("shape", ["repartition", "union", "random_repartition"])
def test_commits_that_arrive_late(stream: Callable[..., ShapedStream], shape: str) -> None:
    """
    What a dead driver has sent last arrives while the next one commits the same batch.
    """
    made = stream(shape, batches=3)
    dead, late = made.held(1, one)
    kill_all(dead)
    job, hold = made.held(1, none)
    try:
        made.cluster.gate.open()
        late.forward()
        wait_until(lambda: f"{late.held} are held" if late.held else None, SECONDS)
        hold.forward()
        assert made.wait(job) == 0, f"{made.verdict()}\n{made.log()}"
    finally:
        kill_all(job)

    made.verify()


@pytest.mark.soak
@pytest.mark.parametrize("shape", ["repartition", "union"])
def test_three_coordinators(tmp_path: Path, shape: str) -> None:
    """
    The commits of a batch go to three brokers, and the driver dies when one is done.
    """
    with GatedCluster(brokers=3) as three:
        made = ShapedStream(three, shape, tmp_path, f"three-{shape}", 3, sink=dict(LONG))
        made.killed(1, one)
        made.completed()

        made.verify()
