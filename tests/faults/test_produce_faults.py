"""
The wire producer while its brokers fail: every record once, in order, or an error with the reason.

Faults hit at known points: between two batches of rows, or when the writer logs a retry. The buffer
is small, so that the rows come no faster than the brokers acknowledge them.
"""

from __future__ import annotations

import logging
import random
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.leadership import leader, move_leader
from tests.support.producing import batch_of, settings, write

from pyspark_pykafka.engines.transaction_contract import PreparedTransaction, TransactionSpec
from pyspark_pykafka.engines.wire.producer.partition_queue import PartitionQueue
from pyspark_pykafka.engines.wire.producer.producer import (
    transaction_client,
    write_in_transaction,
)
from pyspark_pykafka.engines.wire.producer.response_handler import ResponseHandler
from pyspark_pykafka.engines.wire.producer.sender import Sender
from pyspark_pykafka.engines.wire.records.record_batch import ProducerBatch, ProducerIdAndEpoch
from pyspark_pykafka.engines.wire.transactions.transaction_errors import FencedError
from pyspark_pykafka.engines.wire.transactions.transactions import Transactions
from pyspark_pykafka.engines.wire.transactions.values import (
    TransactionState,
)
from pyspark_pykafka.errors import KafkaClientError, TimeoutExceededError
from pyspark_pykafka.retry import Deadline
from pyspark_pykafka.sink.batch_committer import commit_write
from pyspark_pykafka.sink.transactional_ids import write_pattern
from pyspark_pykafka.testing import KafkaCluster, Record
from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from pyspark_pykafka.engines.transaction_contract import TransactionalIdPattern
    from pyspark_pykafka.settings import KafkaSettings

pytestmark = pytest.mark.timeout(240)

NODES = {1, 2, 3}
ENDED = {TransactionState.EMPTY, TransactionState.COMPLETE_ABORT}
BATCHES, ROWS, KEYS = 40, 500, 480
PARTITIONS = 6
#: Many small requests, and a writer that gets ahead of the brokers by one batch of rows at most.
SMALL = {"batch_size": 4000, "buffer_memory": 65_536}
#: The writer's log message for a retry.
AGAIN = r"sending \d+ records"


@pytest.fixture(scope="module")
def three() -> Iterator[KafkaCluster]:
    """
    Three brokers; each test leaves all of them running.
    """
    # One partition, one replica: its leader coordinates all transactions, and waits for no other.
    log = "transaction.state.log"
    counts = ("num.partitions", "replication.factor", "min.isr")
    alone = {f"{log}.{name}": 1 for name in counts}
    with KafkaCluster(3, config=alone) as cluster:
        yield cluster


@dataclass(frozen=True)
class Findings:
    """
    The faults of a topic: numbers that are missing, duplicated, or behind a larger one.
    """

    lost: frozenset[int] = frozenset()
    repeated: frozenset[int] = frozenset()
    disordered: frozenset[int] = frozenset()


def examined(cluster: KafkaCluster, topic: str, batches: int = BATCHES) -> Findings:
    """
    Return the anomalies of a topic's numbered records.
    """
    numbered = [(r.partition, int((r.value or b"").split(b".")[0])) for r in cluster.consume(topic)]
    numbers = [number for _, number in numbered]
    first = list(dict.fromkeys(numbered))
    return Findings(
        lost=frozenset(range(batches * ROWS)) - set(numbers),
        repeated=frozenset(number for number, times in Counter(numbers).items() if times > 1),
        disordered=frozenset(
            after for (p, before), (q, after) in pairwise(first) if p == q and after < before
        ),
    )


def rows(
    faults: Mapping[int, Callable[[], object]] | None = None, batches: int = BATCHES
) -> Iterator[pa.RecordBatch]:
    """
    Yield batches of numbered rows; call a function before some of them.
    """
    for number in range(batches):
        if faults and number in faults:
            faults[number]()
        numbers = range(number * ROWS, (number + 1) * ROWS)
        yield batch_of([Record(b"%d." % i + b"x" * 100, b"k%d" % (i % KEYS)) for i in numbers])


def write_all(cluster: KafkaCluster, topic: str, batches: Any, **kafka: str | int) -> int:
    """
    Write rows through a small buffer.
    """
    return write(cluster.bootstrap, batches, topic, "wire", **{**SMALL, **kafka})


@contextmanager
def on_retry(
    act: Callable[[], object] = lambda: None, *, nth: int = 1, because: str = ""
) -> Iterator[list[str]]:
    """
    Call ``act`` at the n-th retry of the writer whose log message matches ``because``.

    Yields the list of these log messages, which grows during the block.
    """
    retries: list[str] = []

    class RetryHandler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            message = record.getMessage()
            if re.search(f"{because}.*{AGAIN}", message):
                retries.append(message)
                if len(retries) == nth:
                    act()

    logger = logging.getLogger("pyspark_pykafka")
    handler, level = RetryHandler(), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield retries
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


# --- Faults of brokers ----------------------------------------------------------------------------


class Victims:
    """
    Brokers that were killed or paused, so that all of them can be restored.
    """

    def __init__(self, cluster: KafkaCluster) -> None:
        self.cluster = cluster
        self.killed: list[int] = []
        self.count = 0

    def kill(self, node: int) -> None:
        self.cluster.kill(node)
        self.killed.append(node)
        self.count += 1

    def kill_leader(self, topic: str, partition: int = 0) -> None:
        self.kill(leader(self.cluster, topic, partition))

    def bring_back(self) -> None:
        while self.killed:
            self.cluster.restart(self.killed.pop())


@pytest.fixture
def victims(three: KafkaCluster) -> Iterator[Victims]:
    """
    Return an object that kills brokers; all brokers run again after the test.
    """
    victims = Victims(three)
    yield victims
    if three.running_ids() != NODES:
        for node in NODES - three.running_ids():
            three.restart(node)


# --- The checker catches planted faults -----------------------------------------------------------


def silent_follower(cluster: KafkaCluster, name: str, **kafka: int) -> list[str]:
    """
    Write while a follower is silent: batches are in the log, and none is acknowledged in time.
    """
    cluster.create_topic(name)
    follower = min(NODES - {leader(cluster, name)})

    with on_retry(lambda: cluster.resume(follower)) as retries:
        try:
            source = rows({5: lambda: cluster.pause(follower)}, 10)
            write_all(cluster, name, source, request_timeout_ms=1000, **kafka)
        finally:
            if follower not in cluster.running_ids():
                cluster.resume(follower)
    return retries


def moving_leaders(cluster: KafkaCluster, name: str, **kafka: int) -> list[str]:
    """
    Write while the leaders of partitions move, without notice to the writer.
    """
    cluster.create_topic(name, PARTITIONS)

    def move(number: int) -> None:
        partition = number % PARTITIONS
        now = leader(cluster, name, partition)
        move_leader(cluster, name, partition, now % 3 + 1)

    moves = {start: partial(move, start) for start in range(3, BATCHES, 3)}
    with on_retry(because="NOT_LEADER_FOR_PARTITION") as retries:
        write_all(cluster, name, rows(moves), **kafka)
    return retries


def test_batches_without_acknowledgement_are_not_duplicated(three: KafkaCluster) -> None:
    """
    Batches that a leader has written, but not acknowledged in time, are sent again and appear once.
    """
    retries = silent_follower(three, "silent-follower")

    assert retries
    assert examined(three, "silent-follower", 10) == Findings()


def test_moving_leaders(three: KafkaCluster) -> None:
    """
    Partitions whose leaders keep moving have each record once and in order.
    """
    retries = moving_leaders(three, "moving")

    assert retries
    assert examined(three, "moving") == Findings()


# The simulation plants these three faults, too: tests/simulation/planted/writing.py.
@pytest.mark.soak
def test_the_check_finds_renumbered_retries(
    three: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A writer that renumbers a batch when it retries duplicates records, and the check finds them.
    """
    send = PartitionQueue.send

    def renumbering(self: PartitionQueue) -> ProducerBatch:
        self.waiting[0].sequence = None
        return send(self)

    monkeypatch.setattr(PartitionQueue, "send", renumbering)
    silent_follower(three, "renumbered", max_in_flight_requests_per_connection=1)

    assert examined(three, "renumbered", 10).repeated


def without_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Send batches without a producer id, so that no broker checks their sequence numbers.
    """
    encode = ProducerBatch.encode

    def anonymous(self: ProducerBatch, _identity: ProducerIdAndEpoch, **arguments: Any) -> Any:
        return encode(self, ProducerIdAndEpoch(-1, -1), **arguments)

    monkeypatch.setattr(ProducerBatch, "encode", anonymous)


@pytest.mark.soak
def test_the_check_finds_lost_batches(three: KafkaCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A writer that takes an error for an acknowledgement loses records, and the check finds them.
    """
    without_identity(monkeypatch)

    def acknowledge_anyway(
        self: ResponseHandler, queue: PartitionQueue, batch: ProducerBatch, _error: Any
    ) -> None:
        self._acknowledge(queue, batch)

    monkeypatch.setattr(ResponseHandler, "retry", acknowledge_anyway)
    moving_leaders(three, "forgotten")

    assert examined(three, "forgotten").lost


@pytest.mark.soak
def test_the_check_finds_reordered_batches(
    three: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A writer that sends other batches before failed ones reorders records, and the check finds them.
    """
    without_identity(monkeypatch)

    def requeue_at_end(
        self: PartitionQueue, batch: ProducerBatch, not_before: float, _error: Any
    ) -> None:
        self.in_flight.remove(batch)
        self.waiting.append(batch)
        self.not_before = not_before

    monkeypatch.setattr(PartitionQueue, "requeue", requeue_at_end)
    # One small batch in flight, so that other batches wait behind the one that is rejected.
    one_by_one = {"batch_size": 1000, "max_in_flight_requests_per_connection": 1}
    moving_leaders(three, "mixed", **one_by_one)

    assert examined(three, "mixed").disordered


# --- Brokers that go, and come back ---------------------------------------------------------------


@pytest.mark.soak
def test_killed_leaders(three: KafkaCluster, victims: Victims) -> None:
    """
    Leaders are killed (-9) and restarted while rows flow, and the topic has each record once, in
    order.
    """
    name = three.create_topic("killed", PARTITIONS)
    faults: dict[int, Callable[[], object]] = {}
    for number, partition in ((5, 0), (15, 1), (25, 2)):
        faults[number] = lambda partition=partition: victims.kill_leader(name, partition)  # type: ignore[misc]
        faults[number + 5] = victims.bring_back

    assert write_all(three, name, rows(faults)) == BATCHES * ROWS

    assert victims.count == 3
    assert examined(three, name) == Findings()


def test_a_leader_killed_before_its_acknowledgements(
    three: KafkaCluster, victims: Victims, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Batches that a killed leader had replicated without an acknowledgement are not written again.
    """
    name = three.create_topic("owed")
    first = leader(three, name)
    silent, heir = sorted(NODES - {first})
    served: list[Sender] = []
    poll = Sender.poll

    def counted(self: Sender) -> None:
        served.append(self)
        poll(self)

    def batches_between_pauses() -> Iterator[pa.RecordBatch]:
        numbered = rows(batches=12)
        yield next(numbered)
        limit = Deadline.after(30)
        # Batches without rows let the writer handle responses until no request is in flight.
        while not served or served[-1]._accumulator.active:
            assert not limit.expired
            yield batch_of([])
        three.pause(silent)
        before = log_size(three, name, heir)
        yield next(numbered)
        wait_until(lambda: None if log_size(three, name, heir) > before else "no copy yet", 30)
        victims.kill(first)
        three.resume(silent)
        yield from numbered

    monkeypatch.setattr(Sender, "poll", counted)
    with on_retry() as retries:
        written = write_all(three, name, batches_between_pauses(), buffer_memory=1_048_576)
    victims.bring_back()

    assert written == 12 * ROWS
    assert retries
    assert examined(three, name, 12) == Findings()


def log_size(cluster: KafkaCluster, topic: str, node: int) -> int:
    """
    Return how many bytes a broker has of a topic's partition 0.
    """
    segments = cluster.data_folder(node).glob(f"{topic}-0/*.log")
    return sum(segment.stat().st_size for segment in segments)


def test_a_paused_leader(three: KafkaCluster) -> None:
    """
    A frozen leader is abandoned after the request timeout; requests that it handles when it
    resumes change nothing.
    """
    name = three.create_topic("paused", PARTITIONS)
    paused: list[int] = []

    def pause() -> None:
        paused.append(leader(three, name))
        three.pause(paused[0])

    try:
        with on_retry(because=r"no response to Produce.*kafka\.request\.timeout\.ms") as retries:
            written = write_all(
                three,
                name,
                rows({5: pause, 20: lambda: three.resume(paused[0])}),
                request_timeout_ms=1500,
            )
    finally:
        if three.running_ids() != NODES:
            three.resume(paused[0])

    assert written == BATCHES * ROWS
    assert retries
    assert examined(three, name) == Findings()


def no_coordinator(three: KafkaCluster) -> int:
    """
    Return a node that leads partitions, but coordinates no transactions.
    """
    return min(NODES - {leader(three, "__transaction_state")})


@contextmanager
def frozen(three: KafkaCluster, node: int) -> Iterator[None]:
    """
    Pause a node for a while.
    """
    three.pause(node)
    try:
        yield
    finally:
        three.resume(node)


def prepare_everywhere(topic: str, kafka: KafkaSettings) -> PreparedTransaction:
    """
    Write a record to each partition, in a transaction that stays open.
    """
    one_each = batch_of([Record(b"x", None, number) for number in range(PARTITIONS)])
    prepared = write_in_transaction(
        [one_each], kafka, topic, TransactionSpec(f"{topic}-0-0", 60_000)
    ).prepared
    assert prepared is not None
    return prepared


def test_a_commit_waits_for_visibility(three: KafkaCluster) -> None:
    """
    A commit returns once read_committed readers see all rows, although the coordinator responds
    before all partitions have the marker (a frozen leader delays one here).
    """
    topic = three.create_topic("committed", PARTITIONS)
    kafka = settings(three.bootstrap)
    prepared = prepare_everywhere(topic, kafka)

    with transaction_client(kafka) as transactions, ThreadPoolExecutor(1) as other:
        with frozen(three, no_coordinator(three)):
            transactions.end(prepared, commit=True)
            waiting = other.submit(transactions.wait_until_visible, [prepared.transactional_id])
            with pytest.raises(FutureTimeoutError):
                waiting.result(1)
        waiting.result(30)

    records = three.consume(topic, {"isolation.level": "read_committed"})
    assert Counter(record.partition for record in records) == Counter(range(PARTITIONS))


@pytest.mark.parametrize("failed", [False, True], ids=["open", "aborted before"])
def test_a_commit_waits_for_the_abort_of_losing_attempts(
    three: KafkaCluster, monkeypatch: pytest.MonkeyPatch, failed: bool
) -> None:
    """
    A commit returns once readers can pass the rows of a losing attempt, whose abort a frozen leader
    delays here.
    """
    name = f"beside-{failed}".lower()
    topic = three.create_topic(name, PARTITIONS, replication_factor=1)
    kafka = settings(three.bootstrap)
    with transaction_client(kafka) as transactions:
        # The first request creates the coordinator's topic; the coordinator is known from then on.
        transactions.register_id(f"{name}-ended-1")
    node = no_coordinator(three)
    leaders = three.admin().list_topics(topic, timeout=10).topics[topic].partitions
    led_partitions = [number for number, partition in leaders.items() if partition.leader == node]
    uncommitted, rest = (
        batch_of([Record(b"x", None, number) for number in numbers])
        for numbers in (led_partitions, set(leaders) - set(led_partitions))
    )
    assert write_in_transaction(
        [uncommitted], kafka, topic, TransactionSpec(f"{name}-0-0", 60_000)
    ).prepared
    won = write_in_transaction(
        [rest], kafka, topic, TransactionSpec(f"{name}-0-1", 60_000)
    ).prepared
    assert won is not None

    def list_ids(
        _: Transactions, family: TransactionalIdPattern, states: Sequence[TransactionState]
    ) -> list[str]:
        expected_state = TransactionState.PREPARE_ABORT if failed else TransactionState.ONGOING
        return [f"{family.prefix}-0-0"] if expected_state in states else []

    # These requests would go to all brokers, and the frozen one would not respond.
    monkeypatch.setattr(Transactions, "list_ids", list_ids)
    with transaction_client(kafka) as transactions, ThreadPoolExecutor(1) as other:
        with frozen(three, node):
            if failed:
                transactions.abort_ids([f"{name}-0-0"])
            waiting = other.submit(
                commit_write, transactions, [won], write_pattern(name), f"{name}-ended-1"
            )
            with pytest.raises(FutureTimeoutError):
                waiting.result(1)
        waiting.result(30)

    records = three.consume(topic, {"isolation.level": "read_committed"})
    assert {record.partition for record in records} == set(leaders) - set(led_partitions)


def test_an_abort_does_not_wait_for_its_markers(three: KafkaCluster) -> None:
    """
    An abort is decided, and its producer fenced, while a frozen leader delays the marker of a
    partition.
    """
    topic = three.create_topic("aborted", PARTITIONS)
    kafka = settings(three.bootstrap, max_block_ms=10_000)
    prepared = prepare_everywhere(topic, kafka)

    with transaction_client(kafka) as transactions:

        def state() -> TransactionState:
            description = transactions.describe(prepared.transactional_id)
            assert description is not None
            return description.state

        with frozen(three, no_coordinator(three)):
            transactions.abort_ids([prepared.transactional_id])
            assert state() is TransactionState.PREPARE_ABORT
            with pytest.raises(FencedError):
                transactions.end(prepared, commit=True)
        wait_until(lambda: None if state() in ENDED else state().value, 30)

    assert three.consume(topic, {"isolation.level": "read_committed"}) == []


# Unit tests have such a leader: test_stale_broker.py. The simulation stops brokers for a while.
@pytest.mark.soak
def test_too_few_replicas(three: KafkaCluster, victims: Victims) -> None:
    """
    With fewer in-sync replicas than min.insync.replicas, the writer continues once they are back.
    """
    name = three.create_topic("too-few", PARTITIONS, {"min.insync.replicas": 3})
    follower = min(NODES - {leader(three, name)})

    with on_retry(victims.bring_back, nth=4, because="NOT_ENOUGH_REPLICAS") as retries:
        source = rows({5: lambda: victims.kill(follower)})
        written = write_all(three, name, source, request_timeout_ms=2000)

    assert written == BATCHES * ROWS
    assert len(retries) >= 4
    assert examined(three, name) == Findings()


@pytest.mark.soak
def test_two_of_three_brokers_killed(three: KafkaCluster, victims: Victims) -> None:
    """
    If two of three brokers are killed, the write completes once they are back.
    """
    name = three.create_topic("two-gone", PARTITIONS)
    last = leader(three, name)

    def kill_others() -> None:
        for node in NODES - {last}:
            victims.kill(node)

    with on_retry(victims.bring_back, nth=3) as retries:
        written = write_all(three, name, rows({5: kill_others}), request_timeout_ms=1500)

    assert written == BATCHES * ROWS
    assert len(retries) >= 3
    assert examined(three, name) == Findings()


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.timeout(600)
def test_random_faults(three: KafkaCluster, victims: Victims, seed: int) -> None:
    """
    Kills, pauses and moved leaders in any order leave each record once and in order.
    """
    chance = random.Random(seed)
    name = three.create_topic(f"chance-{seed}", PARTITIONS)

    def kill() -> None:
        victims.kill_leader(name, chance.randrange(PARTITIONS))

    def pause() -> None:
        three.pause(leader(three, name, chance.randrange(PARTITIONS)))

    def move() -> None:
        move_leader(three, name, chance.randrange(PARTITIONS), chance.choice(sorted(NODES)))

    def heal() -> None:
        victims.bring_back()
        for node in NODES - three.running_ids():
            three.resume(node)

    faults: dict[int, Callable[[], object]] = {}
    for start in range(4, 4 * BATCHES, 8):
        faults[start] = chance.choice([kill, pause, move, move])
        faults[start + 4] = heal

    codec = chance.choice(["none", "lz4", "zstd"])
    written = write_all(
        three,
        name,
        rows(faults, 4 * BATCHES),
        request_timeout_ms=2000,
        compression_type=codec,
    )
    assert written == 4 * BATCHES * ROWS
    assert examined(three, name, 4 * BATCHES) == Findings()


# --- Timeouts ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "partitions", [50, *(pytest.param(count, marks=pytest.mark.soak) for count in (1, 200))]
)
@pytest.mark.timeout(60)
def test_the_delivery_timeout_is_named(three: KafkaCluster, partitions: int) -> None:
    """
    The error names the timeout that expired, and the last error; hanging brokers delay it by a few
    requests, not by one for each partition.
    """
    name = three.create_topic(f"undelivered-{partitions}", partitions)

    write_all(three, name, rows(batches=2))
    short = {"request_timeout_ms": 1000, "delivery_timeout_ms": 5000, "linger_ms": 0}
    try:
        with pytest.raises(TimeoutExceededError) as caught:
            write_all(three, name, rows({2: three.pause}), **short)
        assert not three.running_addresses()
    finally:
        three.resume()
    assert re.search(
        rf"records for {name}-\d+ were not acknowledged within 5000 ms "
        r"\(kafka\.delivery\.timeout\.ms\); .* after \d tries; the last error: ",
        str(caught.value),
    )


def test_the_request_timeout_is_named(three: KafkaCluster) -> None:
    """
    With one retry, two requests without a response end the write, and the error names
    kafka.request.timeout.ms.
    """
    name = three.create_topic("unanswered")
    follower = min(NODES - {leader(three, name)})

    # On a new topic, other rejections would count as tries.
    write_all(three, name, rows(batches=2))
    short = {"request_timeout_ms": 500, "retries": 1}
    try:
        with pytest.raises(KafkaClientError) as caught:
            write_all(three, name, rows({2: lambda: three.pause(follower)}), **short)
    finally:
        three.resume(follower)
    assert caught.value.retriable
    assert re.search(
        rf"records for {name}-0 were rejected after 2 tries \(kafka\.retries\): .*"
        r"kafka\.request\.timeout\.ms",
        str(caught.value),
    )


def test_waiting_for_rows_does_not_age_batches(three: KafkaCluster) -> None:
    """
    While the writer waits for rows, no batch times out, whether it is sent or waits to be sent.
    """
    name = three.create_topic("slow-rows", PARTITIONS)
    dawdled: list[int] = []

    def dawdle() -> None:
        over = Deadline.after(3.2)
        wait_until(lambda: None if over.expired else "time has to go by", 30)
        dawdled.append(1)

    short = {"request_timeout_ms": 2000, "delivery_timeout_ms": 3000, "linger_ms": 0}
    written = write_all(
        three, name, rows(dict.fromkeys((4, 8), dawdle), 12), **{**short, "batch_size": 1000}
    )

    assert written == 12 * ROWS
    assert len(dawdled) == 2
    assert examined(three, name, 12) == Findings()
