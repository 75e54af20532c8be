"""
Whom to ask next, and whom to believe.
"""

from __future__ import annotations

import math
import threading
import time
import uuid
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_pykafka.engines.wire.network.broker_rotation import DEMOTED_SECONDS, BrokerRotation
from pyspark_pykafka.engines.wire.network.metadata_freshness import (
    MIN_CONFIRMATIONS,
    FreshnessCheck,
    LastSeenEpochs,
)
from pyspark_pykafka.engines.wire.network.racing import race
from pyspark_pykafka.engines.wire.protocol.metadata import (
    BrokerMetadata,
    MetadataResponse,
    PartitionMetadata,
    TopicMetadata,
)
from pyspark_pykafka.errors import AuthenticationError, BrokerUnavailableError, PykafkaError
from pyspark_pykafka.retry import Deadline
from pyspark_pykafka.settings.wire_config import Address

if TYPE_CHECKING:
    from collections.abc import Callable

A, B, C = (Address(name, 9092) for name in "abc")
ID, OTHER_ID = uuid.UUID(int=1), uuid.UUID(int=2)


def rotation(clock: list[float] | None = None, away: tuple[Address, ...] = ()) -> BrokerRotation:
    """
    Return one in which chance does not matter.
    """
    times = clock or [0.0]
    return BrokerRotation(away.__contains__, lambda: 0.0, lambda: times[0])


def test_brokers_take_turns() -> None:
    """
    Who was asked is asked again when all others have been.
    """
    turns, asked = rotation(), []
    for _ in range(6):
        first = turns.ordered([A, B, C], [A, B, C])[0]
        turns.record_request(first)
        asked.append(first)

    assert asked == [A, B, C, A, B, C]


def test_open_connections_come_first() -> None:
    """
    Nobody is connected to for a turn, as long as another can be asked.
    """
    turns = rotation()
    turns.record_request(B)

    assert turns.ordered([A, B, C], [B]) == [B, A, C]


def test_doubted_brokers_come_later_for_a_while() -> None:
    """
    A new connection is better than a broker that was wrong; one that is not reached comes last.
    """
    clock = [0.0]
    turns = rotation(clock, (B,))
    turns.demote(A)

    assert turns.ordered([A, B, C], [A]) == [C, A, B]
    clock[0] += DEMOTED_SECONDS
    assert turns.ordered([A, B, C], [A]) == [A, C, B]


@given(st.lists(st.sampled_from([A, B, C]), max_size=9), st.sets(st.sampled_from([A, B, C])))
def test_nobody_is_left_out(known: list[Address], ready: set[Address]) -> None:
    """
    Whatever happened before, each broker is in the order, once.
    """
    turns = rotation(away=(C,))
    turns.demote(A)
    turns.record_request(B)

    assert sorted(turns.ordered(known, ready)) == sorted(set(known))


def topic(*epochs: int, name: str = "t", topic_id: uuid.UUID | None = ID) -> TopicMetadata:
    partitions = [PartitionMetadata(at, 1, epoch) for at, epoch in enumerate(epochs)]
    return TopicMetadata(0, name, topic_id, partitions)


def missing(name: str = "t") -> TopicMetadata:
    return TopicMetadata(3, name, None, [])


def metadata(*topics: TopicMetadata) -> MetadataResponse:
    return MetadataResponse(0, [BrokerMetadata(1, "a", 9092)], list(topics))


def seeing(*topics: TopicMetadata) -> LastSeenEpochs:
    seen = LastSeenEpochs()
    for one in topics:
        seen.record("c", one)
    return seen


def review(
    seen: LastSeenEpochs | None = None, names: tuple[str, ...] | None = ("t",)
) -> FreshnessCheck:
    return FreshnessCheck("c", names, seen or LastSeenEpochs())


def test_first_answer_is_enough() -> None:
    """
    Where nothing is odd, one broker is asked.
    """
    one = review()

    assert one.add(A, metadata(topic(4, 5)))
    assert one.is_settled
    assert one.result() == metadata(topic(4, 5))


@pytest.mark.parametrize(
    "stale",
    [
        pytest.param(topic(5, 4), id="an older epoch"),
        pytest.param(topic(5), id="a partition less"),
    ],
)
def test_what_is_older_is_not_believed(stale: TopicMetadata) -> None:
    """
    However many brokers say so; a broker that is up to date is.
    """
    one = review(seeing(topic(5, 5)))
    for _ in range(2 * MIN_CONFIRMATIONS):
        assert not one.add(A, metadata(stale))
        assert not one.is_settled
    assert str(A) in str(one.stale_reason())

    assert one.add(B, metadata(topic(5, 6)))
    assert one.is_settled
    assert one.stale_reason() is None
    assert one.result() == metadata(topic(5, 6))


@pytest.mark.parametrize(
    "told",
    [
        pytest.param(topic(0, topic_id=OTHER_ID), id="a topic made again"),
        pytest.param(topic(0, topic_id=None), id="a broker without ids"),
        pytest.param(topic(-1), id="a broker without epochs"),
    ],
)
def test_low_epochs_that_say_nothing(told: TopicMetadata) -> None:
    """
    A topic of another id is another one, and old brokers do not tell.
    """
    assert seeing(topic(5)).staleness("c", told) is None


def test_clusters_do_not_share_what_was_seen() -> None:
    """
    A clone has the ids of its original.
    """
    assert seeing(topic(5)).staleness("another", topic(4)) is None


def test_epochs_only_grow() -> None:
    """
    What two answers tell is the higher of each partition.
    """
    seen = seeing(topic(5, 3), topic(4, 6))

    assert seen.staleness("c", topic(5, 6)) is None
    assert seen.staleness("c", topic(5, 5)) is not None
    assert seen.staleness("c", topic(4, 6)) is not None


def test_a_missing_topic_is_for_several_to_say() -> None:
    """
    One that knows it is believed against others that do not.
    """
    one = review()
    one.add(A, metadata(missing()))
    assert not one.is_settled
    one.add(B, metadata(topic(1)))

    assert one.is_settled
    assert one.result() == metadata(topic(1))

    two = review()
    for at in range(MIN_CONFIRMATIONS):
        assert two.is_settled is False
        two.add((A, B, C)[at], metadata(missing()))
    assert two.is_settled
    assert two.result() == metadata()


def test_a_topic_made_again_is_for_several_to_say() -> None:
    """
    The known one is believed where anybody has it.
    """
    again = topic(0, topic_id=OTHER_ID)
    one = review(seeing(topic(5)))
    one.add(A, metadata(again))
    assert not one.is_settled
    one.add(B, metadata(topic(5)))
    assert one.result() == metadata(topic(5))

    two = review(seeing(topic(5)))
    for address in (A, B, C):
        two.add(address, metadata(again))
    assert two.is_settled
    assert two.result() == metadata(again)


def test_of_all_topics_the_chosen_ones_matter() -> None:
    """
    A topic that was there must be missing with several brokers; of others nothing is kept.
    """
    one = FreshnessCheck(
        "c", None, LastSeenEpochs(), expected_topics=("t", "u"), is_relevant={"t", "u"}.__contains__
    )
    one.add(A, metadata(topic(1), topic(9, name="x")))
    assert not one.is_settled
    one.add(B, metadata(topic(1), topic(1, name="u", topic_id=OTHER_ID)))

    assert one.is_settled
    assert [it.name for it in one.result().topics] == ["t", "u"]


def failing(error: PykafkaError) -> Callable[[], str]:
    def fail() -> str:
        raise error

    return fail


def run(*attempts: Callable[[], str], seconds: float = 5, **more: Callable[..., None]) -> str:
    given = {"on_late_result": lambda _: None, "on_overtaken": lambda _: None, **more}
    return race(list(attempts), 0.05, Deadline.after(seconds), **given, goal="it")  # type: ignore[arg-type]


def test_a_failure_starts_the_next_attempt() -> None:
    """
    The reason is told if all fail.
    """
    down = failing(BrokerUnavailableError("down"))

    assert run(down, lambda: "up") == "up"
    with pytest.raises(BrokerUnavailableError, match="no broker answers: down; down"):
        run(down, down)


def test_an_error_that_does_not_pass_ends_the_race() -> None:
    """
    No other broker would accept the password.
    """
    with pytest.raises(AuthenticationError, match="who"):
        run(failing(AuthenticationError("who")), lambda: "never")


def test_a_slow_attempt_is_overtaken_and_comes_late() -> None:
    """
    Its value is not lost, and it does not go on when nobody waits any more.
    """
    go, came = threading.Event(), threading.Event()
    slow, late = [], []

    def slowly() -> str:
        go.wait(5)
        return "slow"

    def keep(value: str) -> None:
        late.append(value)
        came.set()

    assert run(slowly, lambda: "fast", on_late_result=keep, on_overtaken=slow.append) == "fast"
    assert slow == [0]
    go.set()
    assert came.wait(5)
    assert late == ["slow"]


def test_a_race_ends_at_its_deadline() -> None:
    """
    However many attempts are under way.
    """
    go = threading.Event()
    began = time.monotonic()
    with pytest.raises(BrokerUnavailableError, match="no response in time from 1 of 1"):
        run(lambda: str(go.wait(5)), seconds=0.2)
    go.set()

    assert time.monotonic() - began < 2


def test_a_deadline_that_never_comes_is_no_trouble() -> None:
    """
    Waits are bounded by what the system takes.
    """
    assert run(lambda: "it", seconds=math.inf) == "it"
