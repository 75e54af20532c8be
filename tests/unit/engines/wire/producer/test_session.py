"""
The abort of a task's transaction, whose id another attempt may use by the time of a retry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.support.stub_coordinators import ADD, DESCRIBE, Coordination, StubCoordinators
from tests.support.transaction_clients import connected

from pyspark_pykafka.engines.wire.network.pipeline import PipelineResult
from pyspark_pykafka.engines.wire.producer.session import TransactionalSession
from pyspark_pykafka.engines.wire.transactions import coordinators
from pyspark_pykafka.engines.wire.transactions.transaction_errors import FencedError
from pyspark_pykafka.engines.wire.transactions.transactions import Transactions
from pyspark_pykafka.errors import (
    AuthenticationError,
    BrokerUnavailableError,
    PykafkaError,
    TimeoutExceededError,
)
from pyspark_pykafka.offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark_pykafka.retry import Deadline
    from pyspark_pykafka.settings.wire_config import Address

ID = "w-0-0"
FENCE_ID = "w-ended-f00"
TIMEOUT_MS = 60_000
T0 = TopicPartition("out", 0)


def begin(transactions: Transactions) -> TransactionalSession:
    """
    Begin a transaction and add a partition to it.
    """
    session = TransactionalSession(transactions, ID, transactions.begin(ID, TIMEOUT_MS))
    session.add_partitions([T0])
    return session


def after_the_first_fence(
    monkeypatch: pytest.MonkeyPatch,
    action: Callable[[dict[str, PykafkaError]], dict[str, PykafkaError]],
) -> list[str]:
    """
    Replace the errors of the first InitProducerId by the result of ``action``; return a list to
    which each request appends its transactional id.
    """
    fence_once, fenced = Transactions.fence_once, list[str]()

    def fence(
        self: Transactions, transactional_ids: Iterable[str], deadline: Deadline
    ) -> dict[str, PykafkaError]:
        names = list(transactional_ids)
        errors = fence_once(self, names, deadline)
        fenced.extend(names)
        return action(errors) if len(fenced) == 1 else errors

    monkeypatch.setattr(Transactions, "fence_once", fence)
    return fenced


def test_an_abort_ends_the_transaction() -> None:
    """
    The transaction is aborted, and its producer fenced.
    """
    with StubCoordinators(Coordination()) as stubs, connected(stubs) as transactions:
        session = begin(transactions)
        session.abort()

        entry = stubs.now.names[ID]
    assert entry.state in {"CompleteAbort", "Empty"}
    assert entry.epoch > session.identity.epoch


def test_a_fenced_task_spares_the_next_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A task that finds the fence id ends its own transaction, even if another attempt begins one
    with the same id just before.
    """
    with (
        StubCoordinators(Coordination()) as stubs,
        connected(stubs) as transactions,
        connected(stubs) as others,
    ):
        others.register_id(FENCE_ID)
        identity = transactions.begin(ID, TIMEOUT_MS)
        session = TransactionalSession(transactions, ID, identity, fence_id=FENCE_ID)
        requests = list[str]()

        def take_over(name: str) -> None:
            request = getattr(Transactions, name)

            def after_the_takeover(self: Transactions, *args: Any, **options: Any) -> Any:
                if self is transactions:
                    requests.append(name)
                    others.abort_ids([ID])
                    begin(others)
                return request(self, *args, **options)

            monkeypatch.setattr(Transactions, name, after_the_takeover)

        take_over("end")
        take_over("fence_once")
        with pytest.raises(FencedError, match="has ended without it"):
            session.add_partitions([T0])
        session.abort()

        assert len(requests) == 1
        assert stubs.now.names[ID].state == "Ongoing"


@pytest.mark.parametrize("is_lost", [False, True], ids=["answered", "lost"])
def test_a_repeated_abort_spares_the_next_attempt(
    monkeypatch: pytest.MonkeyPatch, *, is_lost: bool
) -> None:
    """
    If another attempt begins a transaction with the same id once the old one is aborted, a retry of
    the abort does not end the new one. The retry may come long after the first request, whose
    response was lost.
    """
    with (
        StubCoordinators(Coordination()) as stubs,
        connected(stubs) as transactions,
        connected(stubs) as others,
    ):
        session = begin(transactions)

        def begin_again(errors: dict[str, PykafkaError]) -> dict[str, PykafkaError]:
            begin(others)
            return {ID: BrokerUnavailableError("no answer")} if is_lost else errors

        after_the_first_fence(monkeypatch, begin_again)
        session.abort()

        assert stubs.now.names[ID].state == "Ongoing"


def test_an_abort_is_repeated_until_it_is_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A coordinator bumps the epoch before it has stored the abort, and may fail in between.
    """
    with StubCoordinators(Coordination()) as stubs, connected(stubs) as transactions:
        session = begin(transactions)

        def fail_to_store(errors: dict[str, PykafkaError]) -> dict[str, PykafkaError]:
            names = stubs.now.names
            names[ID].state = "Ongoing"
            stubs.set(names=names)
            return errors

        fenced = after_the_first_fence(monkeypatch, fail_to_store)
        session.abort()

        assert stubs.now.names[ID].state in {"CompleteAbort", "Empty"}
    assert len(fenced) > 1


def test_an_id_of_another_producer_is_spared() -> None:
    """
    A task that finds its id taken over aborts nothing.
    """
    with (
        StubCoordinators(Coordination()) as stubs,
        connected(stubs) as transactions,
        connected(stubs) as others,
    ):
        session = begin(transactions)
        others.abort_ids([ID])
        begin(others)
        session.abort()

        assert stubs.now.names[ID].state == "Ongoing"


def test_a_transaction_whose_first_request_was_not_handled() -> None:
    """
    If the first request has no response, the abort fences its producer, so that the request cannot
    begin a transaction later.
    """
    coordination = Coordination(held_apis=frozenset({ADD}))
    with (
        StubCoordinators(coordination) as stubs,
        connected(stubs, max_block_ms=300, request_timeout_ms=200) as transactions,
    ):
        session = TransactionalSession(transactions, ID, transactions.begin(ID, TIMEOUT_MS))
        with pytest.raises(PykafkaError):
            session.add_partitions([T0])
        session.abort()
        stubs.set(held_apis=frozenset())

        entry = stubs.now.names[ID]
    assert entry.state == "Empty"
    assert entry.epoch > session.identity.epoch


def test_the_reason_for_a_missing_abort_is_named() -> None:
    """
    If the coordinator does not respond, the error of the abort says which broker that is.
    """
    with (
        StubCoordinators(Coordination()) as stubs,
        connected(stubs, max_block_ms=300, request_timeout_ms=200) as transactions,
    ):
        session = begin(transactions)
        stubs.set(held_apis=frozenset({DESCRIBE}))
        with pytest.raises(TimeoutExceededError, match=rf"127.0.0.1:{stubs.ports[0]}: .* no resp"):
            session.abort()


def test_a_rejected_login_ends_the_abort(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    An abort is not retried if its coordinator rejects the login: no retry can help.
    """

    def reject(
        _: object, requests: Iterable[Address], *__: object, **___: object
    ) -> PipelineResult[str, object]:
        return PipelineResult({}, {address: AuthenticationError("who?") for address in requests})

    with (
        StubCoordinators(Coordination()) as stubs,
        connected(stubs, max_block_ms=2_000) as transactions,
    ):
        session = begin(transactions)
        monkeypatch.setattr(coordinators, "request_pipelined", reject)
        with pytest.raises(AuthenticationError, match="who"):
            session.abort()
        with pytest.raises(AuthenticationError, match="who"):
            transactions.describe_all([ID])
