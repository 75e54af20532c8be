"""
Commits and aborts of many transactions, with coordinators that are slow, silent or late.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from kafka.protocol.producer import InitProducerIdResponse
from tests.support.stub_brokers import Behaviour, StubCluster
from tests.support.stub_coordinators import (
    DESCRIBE,
    END,
    INIT,
    LIST,
    Coordination,
    StubCoordinators,
    home,
)
from tests.support.transaction_clients import connected

from pyspark_pykafka.cli import main
from pyspark_pykafka.engines.selection import transaction_client
from pyspark_pykafka.engines.transaction_contract import (
    FallbackId,
    PreparedTransaction,
    TransactionSpec,
)
from pyspark_pykafka.engines.wire.producer import producer
from pyspark_pykafka.engines.wire.producer.producer import begin_with_free_id
from pyspark_pykafka.engines.wire.transactions import transactions as transactions_module
from pyspark_pykafka.engines.wire.transactions.settlement import Outcome, settle
from pyspark_pykafka.engines.wire.transactions.transaction_errors import FencedError
from pyspark_pykafka.engines.wire.transactions.transactions import Transactions
from pyspark_pykafka.engines.wire.transactions.values import (
    TransactionDescription,
    TransactionState,
)
from pyspark_pykafka.errors import ExactlyOnceError, PykafkaError, TimeoutExceededError
from pyspark_pykafka.offsets import TopicPartition
from pyspark_pykafka.options import parse_sink
from pyspark_pykafka.retry import Deadline
from pyspark_pykafka.sink import batch_committer, micro_batch_committer
from pyspark_pykafka.sink.batch_committer import abort_write, commit_write
from pyspark_pykafka.sink.delivery import (
    ExactlyOnceBatch,
    ExactlyOnceStream,
    SinkTask,
    TaskCommitMessage,
)
from pyspark_pykafka.sink.ledger_entries import Committable
from pyspark_pykafka.sink.transactional_ids import (
    fallback_id,
    stream_task_transactional_id,
    task_transactional_id,
    write_pattern,
)

if TYPE_CHECKING:
    from pyspark_pykafka.options import SinkOptions

BROKERS = 6
STREAM_TOPICS = {"out": 1, "out-ledger": 1}
MARK = "w-ended-1"
_NOT_AVAILABLE, _INVALID_TIMEOUT, _NOT_AUTHORIZED = 15, 50, 53
#: The next transaction of the id may have been started to abort the previous one.
ENDED = {"CompleteAbort", "Empty"}


def prepared(coordination: Coordination, name: str, *, partitions: int = 1) -> PreparedTransaction:
    """
    Add an open transaction to the coordinators, before they run.
    """
    _, producer_id, epoch = coordination.initialise(name)
    tps = [("out", number) for number in range(partitions)]
    assert coordination.join(name, (producer_id, epoch), tps) == 0
    return PreparedTransaction(name, producer_id, epoch)


def names_on(node: int, count: int, brokers: int = BROKERS) -> list[str]:
    """
    Return the ids of tasks' first attempts that a broker coordinates.
    """
    ids = (task_transactional_id("w", task, 0) for task in range(10_000))
    return [name for name in ids if home(name, brokers) == node][:count]


def states(stubs: StubCoordinators, waiting: list[PreparedTransaction]) -> Counter[str]:
    """
    Return how many transactions are in each state.
    """
    transactions = stubs.now.names
    return Counter(transactions[transaction.transactional_id].state for transaction in waiting)


def requested(stubs: StubCoordinators, key: int) -> int:
    """
    Return how many requests of a kind the brokers have received.
    """
    return sum(count for (_, kind), count in stubs.now.requests.items() if kind == key)


@pytest.mark.parametrize("takes_over", [False, True])
def test_one_warning_names_all_that_could_not_be_ended(
    caplog: pytest.LogCaptureFixture, *, takes_over: bool
) -> None:
    """
    If a missing permission prevents both the registration of a write's fence id and the abort of a
    losing attempt, one warning names both ids.
    """
    coordination = Coordination(brokers=BROKERS, errors={INIT: (_NOT_AUTHORIZED, 99)})
    waiting = [prepared(coordination, task_transactional_id("w", task, 0)) for task in range(3)]
    losing = prepared(coordination, task_transactional_id("w", 0, 1)).transactional_id
    with StubCoordinators(coordination) as stubs, connected(stubs) as transactions:
        commit_write(transactions, waiting, write_pattern("w"), MARK, takes_over=takes_over)

    (warning,) = (r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING)
    assert "everything is committed" in warning
    for transactional_id in (MARK, losing):
        assert f"on the transactional id {transactional_id}" in warning
    assert warning.count("kafka.transaction.timeout.ms") == 1


def test_coordinators_commit_concurrently() -> None:
    """
    Six brokers commit in lockstep: none ends its n-th transaction before all have received theirs.

    A client that waited for one broker before it sent to the next would never finish.
    """
    names = [task_transactional_id("w", task, 0) for task in range(480)]
    min_count = min(Counter(home(name, BROKERS) for name in names).values())
    coordination = Coordination(brokers=BROKERS, lockstep={END: min_count})
    waiting = [prepared(coordination, name) for name in names]
    timeouts = {"request_timeout_ms": 15_000, "max_block_ms": 20_000}
    with StubCoordinators(coordination) as stubs, connected(stubs, **timeouts) as transactions:
        commit_write(transactions, waiting, write_pattern("w"), MARK)

        assert states(stubs, waiting) == Counter(CompleteCommit=480)
        # One request per transaction to end it; one per broker to describe them.
        assert requested(stubs, END) == 480
        assert requested(stubs, DESCRIBE) <= 4 * BROKERS
        # One connection to each coordinator, and one more to find them.
        assert stubs.now.connections.total() <= BROKERS + 1
    assert min_count > 480 / BROKERS / 2


@pytest.mark.soak
@pytest.mark.parametrize("tasks", [1_000, 5_000])
def test_many_tasks_commit_in_time(tasks: int) -> None:
    """
    Six brokers commit a write in less time than a single one would need to replicate its decisions.
    """
    coordination = Coordination(brokers=BROKERS, replication=0.002)
    waiting = [prepared(coordination, task_transactional_id("w", task, 0)) for task in range(tasks)]
    with StubCoordinators(coordination) as stubs, connected(stubs) as transactions:
        started = time.monotonic()
        commit_write(transactions, waiting, write_pattern("w"), MARK)
        took = time.monotonic() - started

        assert states(stubs, waiting) == Counter(CompleteCommit=tasks)
    logging.getLogger("pyspark_pykafka").info("%d tasks were committed in %.2f s", tasks, took)
    assert took < tasks * coordination.replication


def test_an_id_is_not_chosen_by_a_stale_description(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A former coordinator reports an id as free that has an open transaction: the new coordinator is
    queried again, and the task takes its fallback id.
    """
    not_coordinator = 16
    coordination = Coordination(errors={INIT: (not_coordinator, 1)})
    decided = prepared(coordination, "p-0a1b2c3d-0-0-0")
    fallback = FallbackId(f"{decided.transactional_id}-7", "sign")
    transaction = TransactionSpec(decided.transactional_id, 60_000, fallback=fallback)
    original, calls = Transactions.describe, Counter[str]()

    def describe(self: Transactions, name: str) -> TransactionDescription | None:
        calls[name] += 1
        return None if calls.total() == 1 else original(self, name)

    monkeypatch.setattr(Transactions, "describe", describe)
    with StubCoordinators(coordination) as stubs, connected(stubs) as transactions:
        name, identity = begin_with_free_id(transactions, transaction)

        assert states(stubs, [decided]) == Counter(Ongoing=1)
        assert name == fallback.transactional_id
        assert identity.producer_id == stubs.now.names[name].producer_id


def test_a_dead_coordinator_is_connected_to_once() -> None:
    """
    A coordinator that is down before the commit costs one connection, not one per transaction.
    """
    coordination = Coordination(brokers=BROKERS)
    dead = 3
    waiting = [prepared(coordination, name) for name in (*names_on(dead, 20), *names_on(0, 20))]
    timeouts = {"request_timeout_ms": 1_500, "max_block_ms": 250_000}
    with StubCoordinators(coordination) as stubs, connected(stubs, **timeouts) as transactions:
        transactions.describe_all([transaction.transactional_id for transaction in waiting])
        before = stubs.set(silent=frozenset({dead})).connections[dead]
        # The other brokers learn a little later which broker coordinates these ids now.
        stubs.set(moved={dead: 4})
        commit_write(transactions, waiting, write_pattern("w"), MARK)

        assert states(stubs, waiting) == Counter(CompleteCommit=40)
        # Each request that times out closes its connection.
        assert stubs.now.connections[dead] - before <= 1


def test_an_unneeded_silent_broker_does_not_delay_a_commit() -> None:
    """
    A commit sends no request to a silent broker that coordinates none of its transactions, so it
    does not wait for it.
    """
    coordination = Coordination(brokers=2)
    waiting = [prepared(coordination, name) for name in names_on(0, 3, brokers=2)]
    mark = next(name for number in range(99) if home(name := f"w-ended-{number}", 2) == 0)
    # A request to the silent broker would end only with the time limit of the test.
    timeouts = {"request_timeout_ms": 300_000, "max_block_ms": 600_000}
    with StubCoordinators(coordination) as stubs, connected(stubs, **timeouts) as transactions:
        stubs.set(silent=frozenset({1}))
        commit_write(transactions, waiting, write_pattern("w"), mark)

        assert states(stubs, waiting) == Counter(CompleteCommit=3)
        assert requested(stubs, LIST) == 0


@pytest.mark.parametrize("known", [False, True], ids=["not connected", "connected"])
def test_a_silent_broker_delays_a_write_that_takes_ids_over_by_five_seconds(
    caplog: pytest.LogCaptureFixture, *, known: bool
) -> None:
    """
    A write with a prefix of the user, such as each one in foreachBatch, waits at most 5 s for a
    broker that should list the transactions of a dead write; a line says what it has waited for.
    """
    coordination = Coordination(brokers=2)
    waiting = [prepared(coordination, name) for name in names_on(0, 3, brokers=2)]
    mark = next(name for number in range(99) if home(name := f"w-ended-{number}", 2) == 0)
    timeouts = {"request_timeout_ms": 300_000, "max_block_ms": 600_000}
    with StubCoordinators(coordination) as stubs, connected(stubs, **timeouts) as transactions:
        transactions.describe_all(
            [*(transaction.transactional_id for transaction in waiting), mark]
        )
        if known:
            transactions.list_ids(write_pattern("w"))
        stubs.set(silent=frozenset({1}))
        started = time.monotonic()
        commit_write(transactions, waiting, write_pattern("w"), mark, takes_over=True)
        seconds = time.monotonic() - started

        assert states(stubs, waiting) == Counter(CompleteCommit=3)
    assert 4.0 < seconds < 7.0
    silent = f"127.0.0.1:{stubs.ports[1]}"
    (warning,) = (text for text in caplog.messages if "transaction.timeout.ms" in text)
    waited = f"the transactions that {silent} coordinates could not be listed within 5 s: "
    assert warning.startswith(waited)


def test_retries_of_many_transactions_share_their_pauses() -> None:
    """
    Two hundred retriable responses cost as many pauses as one: each round has one pause, and then
    sends all requests again.
    """
    concurrent = 51
    coordination = Coordination(brokers=BROKERS, errors={END: (concurrent, 3)})
    waiting = [prepared(coordination, task_transactional_id("w", task, 0)) for task in range(200)]
    with StubCoordinators(coordination) as stubs, connected(stubs) as transactions:
        transactions.end_all(waiting, commit=True)

        assert states(stubs, waiting) == Counter(CompleteCommit=200)
        ends = stubs.now.ends
    names = {transaction.transactional_id for transaction in waiting}
    assert len(ends) == 4 * 200
    assert [set(ends[start : start + 200]) for start in range(0, 800, 200)] == [names] * 4


def test_a_silent_coordinator_does_not_delay_the_retries_at_others() -> None:
    """
    Transactions whose coordinator must be asked again are committed while another coordinator is
    silent, and not only after its request has timed out.
    """
    concurrent = 51
    coordination = Coordination(brokers=30, errors={END: (concurrent, 2)})
    waiting = [prepared(coordination, task_transactional_id("w", task, 0)) for task in range(200)]
    names = [transaction.transactional_id for transaction in waiting]
    silent_count = sum(home(name, 30) == 7 for name in names)
    timeouts = {"request_timeout_ms": 8_000, "max_block_ms": 8_000}
    with StubCoordinators(coordination) as stubs, connected(stubs, **timeouts) as transactions:
        transactions.describe_all(names)
        stubs.set(silent=frozenset({7}))
        with pytest.raises(TimeoutExceededError, match=f"{silent_count} of 200 are not done"):
            transactions.end_all(waiting, commit=True)

        expected = Counter(CompleteCommit=200 - silent_count, Ongoing=silent_count)
        assert states(stubs, waiting) == expected


@pytest.mark.parametrize("attempt", ["0", "2"], ids=["ran before", "runs beside"])
def test_losing_attempts_are_aborted(attempt: str) -> None:
    """
    A losing attempt is found by the id that it would have; once Spark has retried a task, all
    brokers list their transactions.
    """
    coordination = Coordination(brokers=BROKERS)
    won = prepared(coordination, task_transactional_id("w", 7, 1))
    losing_attempts = [
        prepared(coordination, f"w-7-{attempt}"),
        prepared(coordination, "w-8-0-again99"),
    ]
    other = prepared(coordination, "w-2-7-0")
    with StubCoordinators(coordination) as stubs, connected(stubs) as transactions:
        commit_write(transactions, [won], write_pattern("w"), MARK)

        assert states(stubs, [won]) == Counter(CompleteCommit=1)
        assert set(states(stubs, losing_attempts)) <= ENDED
        assert states(stubs, [other]) == Counter(Ongoing=1)


def test_a_losing_speculative_attempt_is_aborted() -> None:
    """
    The first attempt has won while a speculative one is open: it is found by its id, and all
    brokers list their transactions.
    """
    coordination = Coordination(brokers=BROKERS)
    won, speculative = prepared(coordination, "w-0-0"), prepared(coordination, "w-0-1")
    with StubCoordinators(coordination) as stubs, connected(stubs) as transactions:
        commit_write(transactions, [won], write_pattern("w"), MARK)

        assert states(stubs, [won]) == Counter(CompleteCommit=1)
        assert set(states(stubs, [speculative])) <= ENDED
        assert requested(stubs, LIST) == BROKERS


@pytest.mark.parametrize("first_lost", [1, 2])
def test_losing_attempts_after_one_that_has_ended_are_aborted(first_lost: int) -> None:
    """
    An attempt that has aborted its own transaction shows that Spark has run the task again: all
    brokers list their transactions, so attempts with later numbers are aborted, too.
    """
    coordination = Coordination(brokers=BROKERS)
    won, ended = prepared(coordination, "w-0-0"), prepared(coordination, "w-0-1")
    lost = [prepared(coordination, f"w-0-{first_lost + number}") for number in (1, 2)]
    with StubCoordinators(coordination) as stubs, connected(stubs) as transactions:
        transactions.end_all([ended], commit=False)
        commit_write(transactions, [won], write_pattern("w"), MARK)

        assert states(stubs, [won]) == Counter(CompleteCommit=1)
        assert set(states(stubs, lost)) <= ENDED


def delivery_to(stubs: StubCoordinators, **options: str) -> ExactlyOnceBatch:
    """
    Return the delivery of a batch write, as the driver makes it.
    """
    required = {
        "kafka.bootstrap.servers": stubs.bootstrap,
        "topic": "out",
        "deliveryGuarantee": "exactly-once",
    }
    return ExactlyOnceBatch(parse_sink({**required, **options}, streaming=False))


def messages_of(tasks: list[PreparedTransaction]) -> list[TaskCommitMessage]:
    """
    Return the commit messages of tasks with one row each.
    """
    return [
        TaskCommitMessage(Committable(task, 1, transaction, -1))
        for task, transaction in enumerate(tasks)
    ]


@pytest.mark.parametrize("tasks", [0, 2])
def test_a_narrower_write_ends_all_that_a_dead_one_left(tasks: int) -> None:
    """
    A driver died while it committed 40 tasks; the next write with the same prefix has fewer tasks.
    This write ends the transactions of the dead driver's other tasks, which would hide its own rows
    from readers of committed records.
    """
    coordination = Coordination(brokers=BROKERS)
    done, *left = [
        prepared(coordination, task_transactional_id("w", task, 0)) for task in range(tasks, 40)
    ]
    coordination.end(done.transactional_id, done[1:], commit=True)
    other = prepared(coordination, task_transactional_id("w-2", 39, 0))
    new = [prepared(coordination, task_transactional_id("w", task, 0)) for task in range(tasks)]
    with StubCoordinators(coordination) as stubs:
        delivery_to(stubs, transactionalIdPrefix="w").commit(messages_of(new), tasks, -1)

        assert states(stubs, [done, *new]) == Counter(CompleteCommit=1 + tasks)
        assert set(states(stubs, left)) <= ENDED
        assert states(stubs, [other]) == Counter(Ongoing=1)


def test_a_write_waits_for_the_markers_of_a_dead_one(caplog: pytest.LogCaptureFixture) -> None:
    """
    A transaction whose commit the dead driver had requested, and whose markers are missing, hides
    later rows, too: the write waits for it, and warns after kafka.max.block.ms.
    """
    coordination = Coordination(brokers=2)
    new, ending = (prepared(coordination, task_transactional_id("w", task, 0)) for task in (0, 7))
    coordination.names[ending.transactional_id].state = "PrepareCommit"
    timeouts = {"kafka.request.timeout.ms": "500", "kafka.max.block.ms": "1500"}
    timeouts["kafka.delivery.timeout.ms"] = "10000"
    with StubCoordinators(coordination) as stubs:
        delivery_to(stubs, transactionalIdPrefix="w", **timeouts).commit(messages_of([new]), 1, -1)

        assert states(stubs, [new]) == Counter(CompleteCommit=1)
    assert f"the brokers are still ending 1 transactions: {ending.transactional_id}" in caplog.text


def test_a_write_with_ids_of_its_own_lists_no_transactions() -> None:
    """
    Without the option transactionalIdPrefix no earlier write has used the ids.
    """
    coordination = Coordination(brokers=BROKERS)
    with StubCoordinators(coordination) as stubs:
        delivery = delivery_to(stubs)
        name = task_transactional_id(delivery._prefix, 0, 0)
        with connected(stubs) as transactions:
            identity = transactions.begin(name, 60_000)
            transactions.add_partitions(name, identity, [TopicPartition("out", 0)])
        new = PreparedTransaction(name, *identity)
        delivery.commit(messages_of([new]), 1, -1)

        assert states(stubs, [new]) == Counter(CompleteCommit=1)
        assert requested(stubs, LIST) == 0


def test_the_command_aborts_all_transactions_of_a_prefix() -> None:
    """
    The command aborts the transactions of batch writes and of streams, including those of fallback
    ids, and none of a longer prefix.
    """
    coordination = Coordination(brokers=2)
    query = "0a1b2c3d-0000-0000-0000-000000000000"
    tasks = [
        (task_transactional_id(prefix, 3, 1), stream_task_transactional_id(prefix, query, 7, 3, 1))
        for prefix in ("w", "w-2")
    ]
    of_prefix, of_other_prefixes = (
        [
            prepared(coordination, name)
            for task in both
            for name in (task, fallback_id(task, 99).transactional_id)
        ]
        for both in tasks
    )
    of_other_prefixes.append(prepared(coordination, task_transactional_id("wider", 0, 0)))
    with StubCoordinators(coordination) as stubs:
        arguments = ["transactions", "abort", "--bootstrap-server", stubs.bootstrap]
        assert main([*arguments, "--prefix", "w", "--execute"]) == 0

        assert set(states(stubs, of_prefix)) <= ENDED
        assert states(stubs, of_other_prefixes) == Counter(Ongoing=len(of_other_prefixes))


# --- Outcomes -------------------------------------------------------------------------------------

SHORT = {"request_timeout_ms": 500, "max_block_ms": 2_000, "delivery_timeout_ms": 10_000}


def failure(call: Any, *args: Any) -> PykafkaError:
    """
    Return the error that a call raises.
    """
    with pytest.raises(PykafkaError) as raised:
        call(*args)
    return raised.value


def release_held_requests(stubs: StubCoordinators) -> None:
    """
    Let held requests arrive, and wait until they are handled.
    """
    stubs.set(held_apis=frozenset())
    time.sleep(0.3)


def test_a_late_commit_is_fenced() -> None:
    """
    Commits that hang are given up: they are fenced when they arrive, and the error says that
    nothing is visible.
    """
    coordination = Coordination(held_apis=frozenset({END}))
    waiting = [prepared(coordination, task_transactional_id("w", task, 0)) for task in range(3)]
    with StubCoordinators(coordination) as stubs, connected(stubs, **SHORT) as transactions:
        error = failure(commit_write, transactions, waiting, write_pattern("w"), MARK)
        release_held_requests(stubs)

        assert isinstance(error, TimeoutExceededError)
        assert "nothing of this write is visible" in str(error)
        assert states(stubs, waiting) == Counter(CompleteAbort=3)
        abort_write(transactions, waiting, write_pattern("w"), MARK)


def test_a_commit_whose_responses_are_lost_succeeds() -> None:
    """
    All responses are lost, but every transaction is committed: the write has not failed.
    """
    coordination = Coordination()
    waiting = [prepared(coordination, task_transactional_id("w", task, 0)) for task in range(2)]
    for transaction in waiting:
        coordination.end(transaction.transactional_id, transaction[1:], commit=True)
    coordination.held_apis = frozenset({END})
    with StubCoordinators(coordination) as stubs, connected(stubs, **SHORT) as transactions:
        error = TimeoutExceededError("no answer")
        batch_committer._check_decided(transactions, waiting, error)

        assert states(stubs, waiting) == Counter(CompleteCommit=2)


def test_a_commit_that_lands_just_before_the_fence_is_not_denied() -> None:
    """
    The commit arrives between the description and the fence: the error does not say that nothing is
    visible.
    """
    coordination = Coordination(held_apis=frozenset({END}))
    waiting = [prepared(coordination, task_transactional_id("w", 0, 0))]
    coordination.before = (INIT, waiting[0].transactional_id, True)
    with StubCoordinators(coordination) as stubs, connected(stubs, **SHORT) as transactions:
        error = failure(commit_write, transactions, waiting, write_pattern("w"), MARK)

        assert stubs.now.before is None
    assert isinstance(error, ExactlyOnceError)
    assert "the state of 1 is unknown" in str(error)
    assert "nothing" not in str(error)


@pytest.mark.parametrize(("started", "outcome"), [(5, Outcome.ABORTED), (9, Outcome.LOST)])
@pytest.mark.parametrize("epoch", [5, 6])
def test_an_abort_of_a_later_transaction_proves_nothing(
    epoch: int, started: int, outcome: Outcome
) -> None:
    """
    Our transaction may have been committed before another write reused its id and was aborted: only
    an abort with our start time proves that nothing is visible. Kafka 4.0.0 may bump the epoch of a
    fenced transaction twice (KAFKA-19367).
    """
    prepared = PreparedTransaction("w-0-0", 1, 4)

    assert settled(prepared, epoch, started, {"w-0-0": 5}) == outcome


@pytest.mark.parametrize(
    ("epoch", "start_times", "outcome"),
    [
        (5, {}, Outcome.ABORTED),
        (6, {}, Outcome.LOST),
        (7, {"w-0-0": 5}, Outcome.LOST),
        (3, {"w-0-0": 5}, Outcome.LOST),
    ],
)
def test_an_abort_with_another_epoch(
    epoch: int, start_times: dict[str, int], outcome: Outcome
) -> None:
    """
    An epoch that is bumped twice is believed only with the start time, and other epochs are never
    believed.
    """
    prepared = PreparedTransaction("w-0-0", 1, 4)

    assert settled(prepared, epoch, 5, start_times) == outcome


def settled(
    prepared: PreparedTransaction, epoch: int, started: int, start_times: dict[str, int]
) -> Outcome:
    """
    Return the outcome of a transaction whose id has an aborted one with this epoch and start time.
    """

    class Later:
        config = SimpleNamespace(
            block_seconds=1.0, wire=SimpleNamespace(retry_backoff_max_seconds=0.1)
        )
        cluster = SimpleNamespace(new_deadline=Deadline.after)

        def describe_reachable(self, *_: Any) -> dict[str, TransactionDescription]:
            return {
                prepared.transactional_id: TransactionDescription(
                    *(
                        prepared.transactional_id,
                        TransactionState.COMPLETE_ABORT,
                        prepared.producer_id,
                    ),
                    *(epoch, 60_000, started, 0),
                )
            }

    outcomes = settle(Later(), [prepared], start_times)  # type: ignore[arg-type]
    return outcomes[prepared.transactional_id]


def test_a_partial_commit_is_completed() -> None:
    """
    One coordinator was down while another committed, and is back in time: the rest is committed.
    """
    coordination = Coordination(brokers=2)
    away = [prepared(coordination, name) for name in names_on(1, 5, brokers=2)]
    committed = [prepared(coordination, name) for name in names_on(0, 5, brokers=2)]
    with StubCoordinators(coordination) as stubs, connected(stubs, **SHORT) as transactions:
        transactions.end_all(committed, commit=True)
        error = TimeoutExceededError("too late")
        batch_committer._check_decided(transactions, [*away, *committed], error)

        assert states(stubs, [*away, *committed]) == Counter(CompleteCommit=10)


def test_an_unknown_outcome_is_reported() -> None:
    """
    If a coordinator stays down, the error says what the others have committed, and what may still
    become visible.
    """
    coordination = Coordination(brokers=2)
    away = [prepared(coordination, name) for name in names_on(1, 2, brokers=2)]
    committed = [prepared(coordination, name) for name in names_on(0, 3, brokers=2)]
    waiting = [*away, *committed]
    with StubCoordinators(coordination) as stubs, connected(stubs, **SHORT) as transactions:
        transactions.describe_all([transaction.transactional_id for transaction in waiting])
        stubs.set(silent=frozenset({1}))
        with pytest.raises(TimeoutExceededError, match="2 of 5 are not done within 2000 ms"):
            transactions.end_all(waiting, commit=True)
        timeout = TimeoutExceededError("gone")
        error = failure(batch_committer._check_decided, transactions, waiting, timeout)

    assert isinstance(error, ExactlyOnceError)
    assert error.condition == "EXACTLY_ONCE_COMMITTED_IN_PART"
    assert "3 of 5 tasks are committed" in str(error)
    assert "the state of 2 is unknown (they may still become visible)" in str(error)


@pytest.mark.parametrize("verb", ["abort", "end"])
def test_an_abort_that_meets_a_commit_raises(verb: str) -> None:
    """
    An abort of a committed transaction raises, and does not merely log.
    """
    coordination = Coordination()
    waiting = [prepared(coordination, task_transactional_id("w", task, 0)) for task in range(2)]
    coordination.end(waiting[0].transactional_id, waiting[0][1:], commit=True)
    with StubCoordinators(coordination) as stubs, connected(stubs) as transactions:
        if verb == "abort":
            error = failure(abort_write, transactions, waiting, write_pattern("w"), MARK)
        else:
            with pytest.raises(PykafkaError) as raised:
                transactions.end_all(waiting, commit=False)
            error = raised.value

        assert states(stubs, waiting) == Counter(CompleteCommit=1, CompleteAbort=1)
    assert isinstance(error, ExactlyOnceError)
    assert error.condition == "EXACTLY_ONCE_ABORT_MET_COMMIT"
    assert "1 of the 2 transactions that were to be aborted are committed, w-0-0" in str(error)


def test_a_committed_transaction_is_reported_although_a_later_step_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """
    If an abort meets a commit, that is the error even if another transaction cannot be aborted: a
    user who writes all rows again would duplicate the committed ones.
    """
    coordination = Coordination(errors={INIT: (_NOT_AUTHORIZED, 99)})
    waiting = [prepared(coordination, task_transactional_id("w", task, 0)) for task in range(2)]
    prepared(coordination, task_transactional_id("w", 2, 1))
    coordination.end(waiting[0].transactional_id, waiting[0][1:], commit=True)
    with StubCoordinators(coordination) as stubs, connected(stubs, **SHORT) as transactions:
        error = failure(abort_write, transactions, waiting, write_pattern("w"), MARK)

    assert isinstance(error, ExactlyOnceError)
    assert error.condition == "EXACTLY_ONCE_ABORT_MET_COMMIT"
    assert "aborting w-2-1" in caplog.text


def test_an_abort_of_an_ended_transaction_is_no_error() -> None:
    """
    Transactions that timed out, or whose ids another attempt has taken over, count as aborted.
    """
    coordination = Coordination()
    waiting = [prepared(coordination, task_transactional_id("w", task, 0)) for task in range(2)]
    coordination.end(waiting[0].transactional_id, waiting[0][1:], commit=False)
    coordination.initialise(waiting[1].transactional_id)
    with StubCoordinators(coordination) as stubs, connected(stubs) as transactions:
        abort_write(transactions, waiting, write_pattern("w"), MARK)

        assert states(stubs, waiting) == Counter(CompleteAbort=2)


def test_one_aborted_transaction_prevents_all_commits() -> None:
    """
    If the brokers have aborted one transaction after its timeout, none is committed, and the write
    must be run again.
    """
    coordination = Coordination()
    waiting = [prepared(coordination, task_transactional_id("w", task, 0)) for task in range(2)]
    coordination.end(waiting[0].transactional_id, waiting[0][1:], commit=False)
    with StubCoordinators(coordination) as stubs, connected(stubs) as transactions:
        error = failure(commit_write, transactions, waiting, write_pattern("w"), MARK)

        assert states(stubs, waiting) == Counter(CompleteAbort=1, Ongoing=1)
    assert isinstance(error, FencedError)


# --- Load on the brokers --------------------------------------------------------------------------


@pytest.mark.parametrize(("partitions", "warned"), [(50, False), (51, True)])
def test_many_markers_cause_a_warning(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    partitions: int,
    warned: bool,
) -> None:
    """
    A commit that writes more markers than the limit, one for each task and partition, logs a
    warning.
    """
    assert batch_committer.MANY_MARKERS == 100_000
    monkeypatch.setattr(batch_committer, "MANY_MARKERS", 200)
    coordination = Coordination()
    waiting = [
        prepared(coordination, task_transactional_id("w", index, 0), partitions=partitions)
        for index in range(4)
    ]
    with StubCoordinators(coordination) as stubs, connected(stubs) as transactions:
        commit_write(transactions, waiting, write_pattern("w"), MARK)

    warnings = [entry for entry in caplog.messages if "one transaction marker for each" in entry]
    assert len(warnings) == warned
    assert all(
        "4 tasks" in entry and "51 partitions" in entry and "204" in entry for entry in warnings
    )


def test_partitions_that_transactions_join(caplog: pytest.LogCaptureFixture) -> None:
    """
    The stub counts the added partitions: the tests above rely on it.
    """
    with StubCoordinators(Coordination()) as stubs, connected(stubs) as transactions:
        identity = transactions.begin("w-0-0", 60_000)
        tps = [TopicPartition("out", 1), TopicPartition("out", 2), TopicPartition("in", 1)]
        transactions.add_partitions("w-0-0", identity, tps)
        description = transactions.describe("w-0-0")

    assert description is not None
    assert description.partitions == len(tps)
    assert not caplog.records


# --- Micro-batches --------------------------------------------------------------------------------


def test_a_task_that_begins_during_an_abort(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A task whose transaction begins once the abort of its micro-batch has listed the open ones gives
    up: the fence id is registered before that.
    """
    list_open_ids, errors = batch_committer.list_open_ids, list[PykafkaError]()
    with StubCluster(Behaviour(topics=STREAM_TOPICS, high_watermark=0)) as stubs:
        delivery = ExactlyOnceStream(stream_options(stubs))
        finished = write_task(delivery, 0)

        def list_then_write(*args: Any) -> list[str]:
            names = list_open_ids(*args)
            errors.append(failure(write_task, delivery, 1))
            return names

        monkeypatch.setattr(micro_batch_committer, "list_open_ids", list_then_write)
        ExactlyOnceStream(stream_options(stubs)).abort([finished], 2)
        coordinated = stubs.get("transactions")

    assert [type(error) for error in errors] == [FencedError]
    assert {entry.state for entry in coordinated.values()} <= ENDED


class UnreachableFence(Behaviour):
    """
    The brokers know no coordinator of fence ids.
    """

    def coordinator_error(self, node: int, name: str) -> int:  # noqa: ARG002
        """
        Return COORDINATOR_NOT_AVAILABLE for a fence id.
        """
        return _NOT_AVAILABLE if "-ended-" in name else 0


def stream_options(stubs: StubCluster, **more: str) -> SinkOptions:
    """
    Return the options of an exactly-once stream.
    """
    options = {
        "kafka.bootstrap.servers": stubs.bootstrap,
        "topic": "out",
        "deliveryGuarantee": "exactly-once",
        "transactionalIdPrefix": "out",
        **more,
    }
    return parse_sink(options, streaming=True)


def write_task(
    delivery: ExactlyOnceStream, task: int, *, batch: int = 0, attempt: int = 0
) -> TaskCommitMessage:
    """
    Write a task with one row.
    """
    row = pa.RecordBatch.from_pydict({"value": [b"x"]})
    return delivery.write([row], SinkTask(task, attempt, "q", batch, 7 + task))


@pytest.mark.parametrize(("attempt", "listings"), [(0, 0), (1, 1)])
def test_a_micro_batch_lists_only_where_a_task_ran_again(attempt: int, listings: int) -> None:
    """
    If the ledger shows no open transactions, brokers list theirs only if a task ran again.
    """
    with StubCluster(Behaviour(topics=STREAM_TOPICS, high_watermark=0)) as stubs:
        delivery = ExactlyOnceStream(stream_options(stubs))
        message = write_task(delivery, 0, attempt=attempt)
        # The task lists transactions, too, because the ledger is empty.
        before = stubs.stats()["requests"].get(LIST, 0)
        delivery.commit([message], 1, 0)
        stats, coordinated = stubs.stats()["requests"], stubs.get("transactions")

    assert stats.get(LIST, 0) - before == listings
    assert [entry.state for entry in coordinated.values()] == ["CompleteCommit"]


def test_a_micro_batch_does_not_need_its_fence_id(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """
    A micro-batch is committed even if the coordinator of its fence id does not respond: a task
    looks for the fence id for a short time only.
    """
    monkeypatch.setattr(transactions_module, "_FENCE_SECONDS", 0.2)
    with StubCluster(UnreachableFence(topics=STREAM_TOPICS, high_watermark=0)) as stubs:
        delivery = ExactlyOnceStream(stream_options(stubs))
        message = write_task(delivery, 0)
        delivery.commit([message], 1, 0)
        coordinated = stubs.get("transactions")

    assert [entry.state for entry in coordinated.values()] == ["CompleteCommit"]
    assert any("-ended-" in record.getMessage() for record in caplog.records)


def test_an_abort_does_not_need_the_fence_id(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """
    If the fence id of a failed micro-batch cannot be registered, its tasks are aborted all the
    same, and a warning says what may stay open.
    """
    monkeypatch.setattr(transactions_module, "_FENCE_SECONDS", 0.2)
    with StubCluster(UnreachableFence(topics=STREAM_TOPICS, high_watermark=0)) as stubs:
        delivery = ExactlyOnceStream(stream_options(stubs))
        finished, _ = (write_task(delivery, task) for task in range(2))
        caplog.clear()
        # In Spark another process aborts.
        ExactlyOnceStream(stream_options(stubs)).abort([finished], 2)
        coordinated = stubs.get("transactions")

    assert {entry.state for entry in coordinated.values()} <= ENDED
    (warning,) = (r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING)
    assert "-ended-" in warning


def test_a_failed_batch_write_is_aborted_without_its_fence_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    A batch write whose fence id cannot be registered is aborted in the same way.
    """
    monkeypatch.setattr(transactions_module, "_FENCE_SECONDS", 0.2)
    coordination = Coordination(errors={INIT: (_NOT_AVAILABLE, 999)})
    waiting = [prepared(coordination, task_transactional_id("w", task, 0)) for task in range(2)]
    with StubCoordinators(coordination) as stubs, connected(stubs) as transactions:
        abort_write(transactions, waiting, write_pattern("w"), MARK)

        assert states(stubs, waiting) == Counter(CompleteAbort=2)


def test_a_client_forgets_the_ids_of_earlier_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A worker may write micro-batches for months: it does not remember where each of their fence ids
    was coordinated.
    """
    monkeypatch.setattr(producer, "_MAX_COORDINATORS", 5)
    with StubCluster(Behaviour(topics=STREAM_TOPICS, high_watermark=0)) as stubs:
        options = stream_options(stubs)
        for batch in range(9):
            delivery = ExactlyOnceStream(options)
            delivery.commit([write_task(delivery, 1, batch=batch)], 1, batch)
        with transaction_client(options.kafka) as transactions:
            assert len(transactions.addresses) <= 5


class ShortTransactions(Behaviour):
    """
    The brokers allow transactions of up to 30 seconds (``transaction.max.timeout.ms``).
    """

    def _on_22(self, node: int, request: Any) -> Any:
        if request.transaction_timeout_ms <= 30_000:
            return super()._on_22(node, request)
        return InitProducerIdResponse(
            throttle_time_ms=0,
            error_code=_INVALID_TIMEOUT,
            producer_id=-1,
            producer_epoch=-1,
        )


def test_an_abort_where_only_short_transactions_are_allowed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """
    Transactions are aborted by their ids even if the brokers allow no timeout of a minute.
    """
    with StubCluster(ShortTransactions(topics=STREAM_TOPICS, high_watermark=0)) as stubs:
        options = stream_options(stubs, **{"kafka.transaction.timeout.ms": "20000"})
        delivery = ExactlyOnceStream(options)
        finished, _ = (write_task(delivery, task) for task in range(2))
        caplog.clear()
        ExactlyOnceStream(options).abort([finished], 2)
        coordinated = stubs.get("transactions")

    assert {entry.state for entry in coordinated.values()} <= ENDED
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
