"""
The order of brokers, the check for stale metadata, and racing attempts.
"""

from __future__ import annotations

import math
import threading
import uuid
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_pykafka.engines.wire.network.broker_rotation import DEMOTED_SECONDS, BrokerRotation
from pyspark_pykafka.engines.wire.network.last_seen_epochs import LastSeenEpochs
from pyspark_pykafka.engines.wire.network.metadata_freshness import (
    MIN_CONFIRMATIONS,
    FreshnessCheck,
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


def make_rotation(
    clock: list[float] | None = None, away: tuple[Address, ...] = ()
) -> BrokerRotation:
    """
    Return a rotation without randomness.
    """
    times = clock or [0.0]
    return BrokerRotation(away.__contains__, lambda: 0.0, lambda: times[0])


def test_brokers_rotate() -> None:
    """
    A broker is used again after all others have been.
    """
    rotation, addresses = make_rotation(), []
    for _ in range(6):
        first = rotation.ordered([A, B, C], [A, B, C])[0]
        rotation.record_request(first)
        addresses.append(first)

    assert addresses == [A, B, C, A, B, C]


def test_open_connections_come_first() -> None:
    """
    A new connection is opened only if no broker is connected.
    """
    rotation = make_rotation()
    rotation.record_request(B)

    assert rotation.ordered([A, B, C], [B]) == [B, A, C]


def test_demoted_brokers_come_later_for_a_while() -> None:
    """
    Demoted brokers come after brokers without a connection, and before unreachable brokers.
    """
    clock = [0.0]
    rotation = make_rotation(clock, (B,))
    rotation.demote(A)

    assert rotation.ordered([A, B, C], [A]) == [C, A, B]
    clock[0] += DEMOTED_SECONDS
    assert rotation.ordered([A, B, C], [A]) == [A, C, B]


@given(st.lists(st.sampled_from([A, B, C]), max_size=9), st.sets(st.sampled_from([A, B, C])))
def test_the_order_has_every_broker_once(addresses: list[Address], ready: set[Address]) -> None:
    """
    The order has each broker once, whatever happened before.
    """
    rotation = make_rotation(away=(C,))
    rotation.demote(A)
    rotation.record_request(B)

    assert sorted(rotation.ordered(addresses, ready)) == sorted(set(addresses))


def topic(*epochs: int, name: str = "t", topic_id: uuid.UUID | None = ID) -> TopicMetadata:
    partitions = [PartitionMetadata(index, 1, epoch) for index, epoch in enumerate(epochs)]
    return TopicMetadata(0, name, topic_id, partitions)


def missing(name: str = "t") -> TopicMetadata:
    return TopicMetadata(3, name, None, [])


def metadata(*topics: TopicMetadata) -> MetadataResponse:
    return MetadataResponse(0, [BrokerMetadata(1, "a", 9092)], list(topics))


def seen_epochs(*topics: TopicMetadata) -> LastSeenEpochs:
    epochs = LastSeenEpochs()
    for topic in topics:
        epochs.record("c", topic)
    return epochs


def confirmed_topics(*topics: TopicMetadata) -> LastSeenEpochs:
    """
    Return the epochs of topics that two brokers have returned.
    """
    epochs = seen_epochs(*topics)
    for one in topics:
        epochs.confirm("c", one)
    return epochs


def check(
    seen: LastSeenEpochs | None = None, names: tuple[str, ...] | None = ("t",)
) -> FreshnessCheck:
    return FreshnessCheck("c", names, seen or LastSeenEpochs())


def check_after(*responses: tuple[Address, MetadataResponse]) -> FreshnessCheck:
    """
    Return the freshness check of a process that has seen no topics, to which these responses were
    added.
    """
    check = FreshnessCheck("c", ("t",), LastSeenEpochs())
    for address, response in responses:
        check.add(address, response)
    return check


def cluster_metadata(*topics: TopicMetadata) -> MetadataResponse:
    return metadata(*topics)._replace(
        brokers=[BrokerMetadata(1, "a", 9092), BrokerMetadata(2, "b", 9092)]
    )


def test_the_highest_epoch_of_each_partition_counts() -> None:
    """
    Two brokers may each be behind for a different partition, and one may know more partitions.
    """
    check = check_after((A, cluster_metadata(topic(4, 7))), (B, cluster_metadata(topic(5, 6, 0))))

    assert check.is_settled
    assert [partition.leader_epoch for partition in check.result().topics[0].partitions] == [
        5,
        7,
        0,
    ]
    assert check.behind == {A, B}


def test_new_topics_need_a_second_broker() -> None:
    """
    The first response is complete, but not settled; a topic seen before needs no second response.
    """
    check = check_after((A, cluster_metadata(topic(4))))
    assert check.is_complete
    assert not check.is_settled

    second_check = FreshnessCheck("c", ("t",), confirmed_topics(topic(4)))
    second_check.add(A, cluster_metadata(topic(4)))
    assert second_check.is_settled


def test_an_address_that_no_broker_advertises_confirms_nothing() -> None:
    """
    A bootstrap address may lead to any broker, even to the one that responds next.
    """
    first = (C, cluster_metadata(topic(4)))
    assert not check_after(first, (A, cluster_metadata(topic(4)))).is_settled
    assert check_after(
        first, (A, cluster_metadata(topic(4))), (B, cluster_metadata(topic(4)))
    ).is_settled


def test_aliases_of_one_broker_confirm_nothing() -> None:
    """
    Responses of addresses that no broker advertises confirm nothing, however many there are.
    """
    aliases = [Address(name, 9092) for name in "xyz"]
    check = check_after(*((alias, cluster_metadata(topic(4))) for alias in aliases))

    assert not check.is_settled


def test_a_topic_that_was_only_written_to_is_new() -> None:
    """
    If a process has only written to a topic, the topic's leader epochs come from one broker, and
    must be confirmed.
    """
    epochs = LastSeenEpochs()
    writer = FreshnessCheck("c", ("t",), epochs, confirms_new_topics=False)
    writer.add(A, cluster_metadata(topic(4)))
    writer.result()
    plan = FreshnessCheck("c", ("t",), epochs)
    plan.add(A, cluster_metadata(topic(4)))

    assert not plan.is_settled


def test_a_new_pattern_needs_a_second_broker() -> None:
    """
    A broker may know the topics that the process has read, and lack other topics that match the
    pattern.
    """
    epochs = confirmed_topics(topic(4))
    pattern = FreshnessCheck("c", None, epochs)
    pattern.add(A, cluster_metadata(topic(4)))

    assert not pattern.is_settled


def test_epochs_count_without_topic_ids() -> None:
    """
    Brokers from 2.1 to 2.7 return leader epochs without ids.
    """
    old, new = topic(4, topic_id=None), topic(5, topic_id=None)
    check = check_after((A, cluster_metadata(old)))
    was_settled = check.is_settled
    check.add(B, cluster_metadata(new))

    assert (was_settled, check.is_settled) == (False, True)
    assert check.result().topics == [new]


def test_a_topic_without_an_id_is_confirmed_each_time() -> None:
    """
    Its epochs are not remembered, since those of a recreated topic start again: one broker's later
    metadata may be stale.
    """
    one = topic(4, topic_id=None)
    later = FreshnessCheck("c", ("t",), confirmed_topics(one))
    later.add(A, cluster_metadata(one))
    was_settled = later.is_settled
    later.add(B, cluster_metadata(one))

    assert (was_settled, later.is_settled) == (False, True)


def test_one_response_is_enough_without_epochs() -> None:
    """
    Responses of brokers before 2.1 cannot be compared.
    """
    assert check_after((A, cluster_metadata(topic(-1, topic_id=None)))).is_settled


def test_an_unknown_epoch_does_not_demote_a_broker() -> None:
    """
    An epoch of -1 proves nothing.
    """
    check = check_after((A, cluster_metadata(topic(5))), (B, cluster_metadata(topic(-1))))

    assert not check.behind


def test_a_broker_that_lacks_a_partition_is_behind() -> None:
    """
    Of two brokers the one without the partition is behind, whichever responds first.
    """
    more, fewer = cluster_metadata(topic(4, 0)), cluster_metadata(topic(4))

    assert check_after((A, more), (B, fewer)).behind == {B}
    assert check_after((B, fewer), (A, more)).behind == {B}


def test_brokers_of_all_responses_are_known() -> None:
    """
    The result has the brokers of all responses: one that is behind may lack the newest leader.
    """
    later = cluster_metadata(topic(4, 7))
    later.brokers.append(BrokerMetadata(3, "c", 9092))
    for first, second in [(topic(5, 6), later.topics[0]), (topic(3, 6), later.topics[0])]:
        check = check_after((A, cluster_metadata(first)), (B, later._replace(topics=[second])))
        assert [broker.node_id for broker in check.result().brokers] == [1, 2, 3]


def test_no_brokers_are_not_a_cluster_of_one() -> None:
    """
    A response without brokers settles nothing: a broker that has just started may know none.
    """
    check = FreshnessCheck("c", None, LastSeenEpochs())
    check.add(A, MetadataResponse(0, [], []))

    assert not check.is_settled


@pytest.mark.parametrize("error", [29, 5])
def test_a_topic_error_of_one_broker_does_not_count(error: int) -> None:
    """
    One broker's error does not count: it may not know a new permission or a new topic's leader yet.
    """
    failed = TopicMetadata(error, "t", None, [])
    check = check_after((A, cluster_metadata(failed)))
    assert not check.is_settled
    check.add(B, cluster_metadata(topic(4)))

    assert check.result().topics == [topic(4)]


def test_a_third_broker_decides_between_topic_ids() -> None:
    """
    Of two topics with one name, only a majority of brokers shows which is the later one.
    """
    old, recreated = cluster_metadata(topic(9)), cluster_metadata(topic(0, topic_id=OTHER_ID))
    for one in (old, recreated):
        one.brokers.append(BrokerMetadata(3, "c", 9092))
    for responses in [
        (old, recreated, recreated),
        (recreated, old, recreated),
        (recreated, recreated),
    ]:
        check = check_after(*zip((A, B), responses, strict=False))
        assert check.is_settled == (len(responses) == 2)
        if not check.is_settled:
            check.add(C, responses[2])
        assert check.is_settled
        assert check.result().topics == recreated.topics


@pytest.mark.parametrize("third", [topic(0, topic_id=OTHER_ID), missing()])
def test_three_responses_may_leave_a_topic_to_one_broker(third: TopicMetadata) -> None:
    """
    A broker that has just started knows no topics, and decides neither whether a topic exists nor
    which of two topics is the current one of that name.
    """
    responses = [cluster_metadata(one) for one in (topic(9), missing(), third)]
    for one in responses:
        one.brokers.append(BrokerMetadata(3, "c", 9092))
    check = check_after(*zip((A, B, C), responses, strict=True))
    check_of_two = check_after((A, responses[0]), (B, responses[0]))

    assert (check.is_settled, check.rests_on_one_broker) == (True, True)
    assert not check_of_two.rests_on_one_broker


def test_one_fresh_response_is_enough() -> None:
    """
    Without anything suspicious, one broker is enough.
    """
    freshness = check()

    assert freshness.add(A, metadata(topic(4, 5)))
    assert freshness.is_settled
    assert freshness.result() == metadata(topic(4, 5))


@pytest.mark.parametrize(
    "stale",
    [
        pytest.param(topic(5, 4), id="an older epoch"),
        pytest.param(topic(5), id="a missing partition"),
    ],
)
def test_stale_metadata_is_rejected(stale: TopicMetadata) -> None:
    """
    Stale metadata is rejected, however often it is returned; a newer response is accepted.
    """
    freshness = check(seen_epochs(topic(5, 5)))
    for _ in range(2 * MIN_CONFIRMATIONS):
        assert not freshness.add(A, metadata(stale))
        assert not freshness.is_settled
    assert str(A) in str(freshness.stale_reason())

    assert freshness.add(B, metadata(topic(5, 6)))
    assert freshness.is_settled
    assert freshness.stale_reason() is None
    assert freshness.result() == metadata(topic(5, 6))


@pytest.mark.parametrize(
    "candidate",
    [
        pytest.param(topic(0, topic_id=OTHER_ID), id="a recreated topic"),
        pytest.param(topic(0, topic_id=None), id="a broker without ids"),
        pytest.param(topic(-1), id="a broker without epochs"),
    ],
)
def test_low_epochs_that_are_no_sign_of_staleness(candidate: TopicMetadata) -> None:
    """
    A topic with another id is a new topic, and old brokers send no ids or epochs.
    """
    assert seen_epochs(topic(5)).staleness("c", candidate) is None


def test_epochs_are_kept_per_cluster() -> None:
    """
    Epochs of one cluster do not count for another: a clone has the same topic ids.
    """
    assert seen_epochs(topic(5)).staleness("another", topic(4)) is None


def test_the_highest_epoch_of_each_partition_is_kept() -> None:
    """
    Two responses give the higher epoch of each partition.
    """
    epochs = seen_epochs(topic(5, 3), topic(4, 6))

    assert epochs.staleness("c", topic(5, 6)) is None
    assert epochs.staleness("c", topic(5, 5)) is not None
    assert epochs.staleness("c", topic(4, 6)) is not None


def test_a_missing_topic_needs_several_confirmations() -> None:
    """
    One broker that has the topic overrules others that do not.
    """
    freshness = check()
    freshness.add(A, metadata(missing()))
    was_settled = freshness.is_settled
    freshness.add(B, metadata(topic(1)))

    assert (was_settled, freshness.is_settled) == (False, True)
    assert freshness.result() == metadata(topic(1))

    second_check = check()
    for number in range(MIN_CONFIRMATIONS):
        assert second_check.is_settled is False
        second_check.add((A, B, C)[number], metadata(missing()))
    assert second_check.is_settled
    assert second_check.result() == metadata()


def test_a_recreated_topic_needs_several_confirmations() -> None:
    """
    The known topic id is preferred if any broker still has it.
    """
    recreated = topic(0, topic_id=OTHER_ID)
    freshness = check(seen_epochs(topic(5)))
    freshness.add(A, metadata(recreated))
    assert not freshness.is_settled
    freshness.add(B, metadata(topic(5)))
    assert freshness.result() == metadata(topic(5))

    second_check = check(seen_epochs(topic(5)))
    for address in (A, B, C):
        second_check.add(address, metadata(recreated))
    assert second_check.is_settled
    assert second_check.result() == metadata(recreated)


def test_irrelevant_topics_are_ignored() -> None:
    """
    Several brokers must confirm that an expected topic is missing; topics that are not relevant are
    dropped.
    """
    freshness = FreshnessCheck(
        "c", None, LastSeenEpochs(), expected_topics=("t", "u"), is_relevant={"t", "u"}.__contains__
    )
    freshness.add(A, metadata(topic(1), topic(9, name="x")))
    was_settled = freshness.is_settled
    freshness.add(B, metadata(topic(1), topic(1, name="u", topic_id=OTHER_ID)))

    assert (was_settled, freshness.is_settled) == (False, True)
    assert [topic.name for topic in freshness.result().topics] == ["t", "u"]


def failing(error: PykafkaError) -> Callable[[], str]:
    def fail() -> str:
        raise error

    return fail


def run(
    *attempts: Callable[[], str],
    seconds: float = 5,
    on_late_result: Callable[[str], None] = lambda _: None,
    on_slow_attempt: Callable[[int], None] = lambda _: None,
) -> str:
    return race(
        attempts,
        0.05,
        Deadline.after(seconds),
        on_late_result=on_late_result,
        on_slow_attempt=on_slow_attempt,
        names=[f"b:{number}" for number in range(len(attempts))],
        goal="it",
    )


def test_a_failure_starts_the_next_attempt() -> None:
    """
    If all attempts fail, the error lists all reasons.
    """
    down, gone = (failing(BrokerUnavailableError(text)) for text in ("down", "gone"))

    assert run(down, lambda: "up") == "up"
    with pytest.raises(BrokerUnavailableError, match="no broker answers: down, gone; "):
        run(down, gone)


def test_a_fatal_error_ends_the_race() -> None:
    """
    After a rejected login no other broker is tried: none would accept the password.
    """
    with pytest.raises(AuthenticationError, match="who"):
        run(failing(AuthenticationError("who")), lambda: "never")


def test_a_slow_attempt_is_overtaken() -> None:
    """
    The value of a slow attempt is handed over when it arrives late.
    """
    go, arrived = threading.Event(), threading.Event()
    slow: list[int] = []
    late: list[str] = []

    def slowly() -> str:
        go.wait(5)
        return "slow"

    def keep(value: str) -> None:
        late.append(value)
        arrived.set()

    assert run(slowly, lambda: "fast", on_late_result=keep, on_slow_attempt=slow.append) == "fast"
    assert slow == [0]
    go.set()
    assert arrived.wait(5)
    assert late == ["slow"]


def test_a_race_ends_at_its_deadline() -> None:
    """
    The race ends although an attempt is still running.
    """
    go = threading.Event()
    with pytest.raises(
        BrokerUnavailableError, match="no broker answers: b:0: no response in time; "
    ):
        run(lambda: str(go.wait(60)), seconds=0.2)
    go.set()


def test_a_race_without_a_deadline() -> None:
    """
    Without a deadline a race still returns its value: waits are limited to the system's maximum.
    """
    assert run(lambda: "it", seconds=math.inf) == "it"
