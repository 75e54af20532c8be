"""
A broker that is cut off from its controllers, and still answers clients from old metadata.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.fetching import VALUES, settings
from tests.support.listening import unused_address
from tests.support.stub_behaviour import API_VERSIONS, METADATA, PRODUCE, FetchAnswer
from tests.support.stub_brokers import Behaviour, StubCluster

from pyspark_pykafka.engines.contract import Watermarks
from pyspark_pykafka.engines.librdkafka import consumer as librdkafka_consumer
from pyspark_pykafka.engines.librdkafka.confirmed_watermarks import ConfirmedWatermarks
from pyspark_pykafka.engines.selection import fetch
from pyspark_pykafka.engines.wire.consumer.leaders import PartitionLeaders
from pyspark_pykafka.engines.wire.consumer.metadata import WireMetadata
from pyspark_pykafka.engines.wire.network import last_seen_epochs, metadata_reader
from pyspark_pykafka.engines.wire.network.broker_selector import BrokerSelector
from pyspark_pykafka.engines.wire.network.cluster import Cluster
from pyspark_pykafka.engines.wire.network.connection_cache import ConnectionCache
from pyspark_pykafka.engines.wire.network.last_seen_epochs import LastSeenEpochs
from pyspark_pykafka.engines.wire.network.reachability import Reachability
from pyspark_pykafka.engines.wire.transactions.transactions import Transactions
from pyspark_pykafka.errors import (
    AuthenticationError,
    BrokerUnavailableError,
    PykafkaError,
    UnknownTopicError,
)
from pyspark_pykafka.offsets import EARLIEST, LATEST, OffsetRange, TopicPartition
from pyspark_pykafka.options import parse_batch_source, parse_stream_source
from pyspark_pykafka.retry import Deadline
from pyspark_pykafka.settings import KafkaSettings
from pyspark_pykafka.settings.wire_config import wire_config, wire_producer_config
from pyspark_pykafka.source.factory import metadata_client
from pyspark_pykafka.source.micro_batch_stream import MicroBatchStream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark_pykafka.engines.wire.network.connection import Connection
    from pyspark_pykafka.settings.wire_config import Address

STALE = 0
P0 = TopicPartition("t", 0)
_NOT_LEADER = 6
_REQUEST_TIMED_OUT = 7
_COORDINATOR_NOT_AVAILABLE = 15


class Stale(Behaviour):
    """
    Three brokers; the first believes that it leads everything, under the previous epoch, and has no
    later topics or records; the true leader is another broker.
    """

    stale: tuple[int, ...] = (STALE,)
    metadata_node = -1
    later: tuple[str, ...] = ()
    metadata_nodes: tuple[int, ...] = ()

    def _on_3(self, node: int, request: Any) -> Any:
        self.metadata_node = node
        self.metadata_nodes += (node,)
        return super()._on_3(node, request)

    def topics_of(self, node: int) -> dict[str, int]:
        names = self.topics if node not in self.stale else self.topics.keys() - set(self.later)
        return {name: 1 if node in self.stale else self.topics[name] for name in names}

    def leader(self, topic: str, partition: int) -> int:  # noqa: ARG002
        return STALE if self._is_stale() else 1

    def leader_epoch(self, topic: str, partition: int) -> int:  # noqa: ARG002
        return 4 if self._is_stale() else 5

    def offsets(self, node: int, topic: str, partition: int, timestamp: int) -> tuple[int, int]:  # noqa: ARG002
        if node not in {STALE, 1}:
            return 6, -1
        return 0, 0 if timestamp == -2 else 100 if node in self.stale else 200

    def _is_stale(self) -> bool:
        return self.metadata_node in self.stale


@pytest.fixture(autouse=True)
def _new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Forget the leader epochs of other tests, whose brokers may have had the same ports.
    """
    monkeypatch.setattr(last_seen_epochs, "LAST_SEEN_EPOCHS", LastSeenEpochs())
    monkeypatch.setattr(metadata_reader, "_SECOND_RESPONSES", Reachability(), raising=False)


@pytest.fixture
def stubs() -> Iterator[StubCluster]:
    """
    Return three brokers; the first is stale.
    """
    with StubCluster(Stale(brokers=3, topics={"t": 1, "new": 1}, later=("new",))) as cluster:
        yield cluster


def bootstrap(stubs: StubCluster, *nodes: int) -> str:
    return ",".join(f"127.0.0.1:{stubs.ports[node]}" for node in nodes)


def cluster_of(servers: str, *, creates_topics: bool = False) -> Cluster:
    """
    Return a cluster that tries the bootstrap servers in order; a writer's cluster creates topics.
    """
    turns = iter(range(1_000_000))
    config = wire_config(KafkaSettings.of({"bootstrap.servers": servers}))
    return Cluster(config, creates_topics, jitter=lambda: float(next(turns)))


def stream(servers: str, **options: str) -> MicroBatchStream:
    source_options = options or {"subscribe": "t"}
    parsed = parse_stream_source(
        {"kafka.bootstrap.servers": servers, "startingOffsets": "earliest", **source_options}
    )
    return MicroBatchStream(
        parsed, metadata_client(parsed), lambda offsets: dict.fromkeys(offsets, 100.0)
    )


def soon(seconds: float = 10) -> Deadline:
    return Deadline.after(seconds)


def test_a_stream_reads_from_the_new_leader(stubs: StubCluster) -> None:
    """
    A query that knows only the stale broker, which believes itself the leader, plans the new
    leader's records within a few triggers, and always from then on.
    """
    query = stream(bootstrap(stubs, STALE))
    offset = query.latest_offset(query.initial_offset())
    ends: list[int] = []
    until = time.monotonic() + 20
    while len(ends) < 5 and time.monotonic() < until:
        offset = query.latest_offset(offset)
        if ends or offset["t"]["0"] == 200:
            ends.append(offset["t"]["0"])

    assert ends == [200] * 5


def planned_end(servers: str) -> int:
    """
    Return the end offset that a batch query of a new process would plan.
    """
    options = parse_batch_source({"kafka.bootstrap.servers": servers, "subscribe": "t"})
    return metadata_client(options).log_ends([P0]).offsets[P0]


@pytest.mark.parametrize("nodes", [(STALE,), (STALE, 1), (STALE, 2), (2, STALE)])
def test_a_batch_reads_to_the_new_leaders_end(stubs: StubCluster, nodes: tuple[int, ...]) -> None:
    """
    A batch query plans once, so its first metadata comes from two brokers; the higher epoch counts.
    """
    assert planned_end(bootstrap(stubs, *nodes)) == 200


class UnknownToOne(Stale):
    """
    The third of four brokers does not know the topic yet.
    """

    def topics_of(self, node: int) -> dict[str, int]:
        return {} if node == 2 else super().topics_of(node)


@pytest.mark.parametrize("nodes", [(STALE, 2), (2, STALE), (STALE, 2, 3)])
def test_a_broker_without_the_topic_confirms_nothing(
    monkeypatch: pytest.MonkeyPatch, nodes: tuple[int, ...]
) -> None:
    """
    The metadata of a stale broker is only confirmed by a broker that knows the topic.
    """
    with StubCluster(UnknownToOne(brokers=4, topics={"t": 1})) as stubs:
        # The order of brokers is random, so each process may ask different ones.
        for _ in range(8):
            monkeypatch.setattr(last_seen_epochs, "LAST_SEEN_EPOCHS", LastSeenEpochs())
            assert planned_end(bootstrap(stubs, *nodes)) == 200


class StaleLog(Stale):
    """
    Stale brokers that serve their shorter log to Fetch requests, too.
    """

    def fetch(self, node: int, topic: str, partition: int, offset: int) -> FetchAnswer:
        if node not in {STALE, 1}:
            return FetchAnswer(_NOT_LEADER, -1)
        answer = super().fetch(node, topic, partition, offset)
        return FetchAnswer(0, 100, answer.records) if node in self.stale else answer

    def _on_2(self, node: int, request: Any) -> Any:
        # A leader returns its own epoch.
        self.metadata_node = node
        return super()._on_2(node, request)


def offsets_read(
    offset_range: OffsetRange, engine: str, nodes: tuple[int, ...], **changes: Any
) -> list[int]:
    """
    Return the offsets that a task reads from a cluster with a stale broker.
    """
    with StubCluster(StaleLog(brokers=3, topics={"t": 1}, high_watermark=200)) as stubs:
        task = settings(bootstrap(stubs, *nodes), engine, schema=VALUES, **changes)
        return [
            offset for batch in fetch(offset_range, task) for offset in batch["offset"].to_pylist()
        ]


@pytest.mark.parametrize("engine", ["wire", "librdkafka"])
@pytest.mark.parametrize("nodes", [(STALE,), (STALE, 1), (STALE, 2), (2, STALE)])
def test_a_task_reads_to_the_new_leaders_end(engine: str, nodes: tuple[int, ...]) -> None:
    """
    A task that resolves ``latest`` itself reads to the end of the log of the new leader.
    """
    assert offsets_read(OffsetRange(P0, EARLIEST, LATEST), engine, nodes) == list(range(200))


@pytest.mark.parametrize("engine", ["wire", "librdkafka"])
def test_a_worker_that_is_used_again_reads_to_the_new_leaders_end(engine: str) -> None:
    """
    A worker keeps the leader of a topic that it has read; a later task that resolves ``latest``
    confirms it.
    """
    with StubCluster(StaleLog(brokers=3, topics={"t": 1}, high_watermark=200)) as stubs:
        task = settings(bootstrap(stubs, STALE, 1, 2), engine, schema=VALUES)
        latest = OffsetRange(P0, EARLIEST, LATEST)

        def read() -> list[int]:
            batches = fetch(latest, task)
            return [offset for batch in batches for offset in batch["offset"].to_pylist()]

        # Until its session expires, a leader that is cut off is the only one.
        stubs.set(stale=(0, 1, 2))
        before = read()
        stubs.set(stale=(STALE,))

        assert (before, read()) == (list(range(100)), list(range(200)))


@pytest.mark.parametrize("fail", [True, False])
def test_clients_of_librdkafka_that_find_the_stale_leader(
    monkeypatch: pytest.MonkeyPatch, *, fail: bool
) -> None:
    """
    A client may get its metadata from the stale broker although it was given the leader's address.
    A new client then replaces that client, if necessary more than once, as long as the leader's log
    has the records.
    """
    addresses: list[str] = []
    # At first all brokers name the stale leader: a client chooses by itself whose metadata it uses.
    stubs = StaleLog(brokers=3, topics={"t": 1}, high_watermark=200, stale=(0, 1, 2))
    with StubCluster(stubs) as cluster:

        def confirm(*_: object) -> ConfirmedWatermarks:
            if len(addresses) == 3:
                cluster.set(stale=(STALE,))
            addresses.append(bootstrap(cluster, STALE if len(addresses) < 3 else 2))
            return ConfirmedWatermarks(Watermarks(0, 200), addresses[-1])

        monkeypatch.setattr(librdkafka_consumer, "confirm_watermarks", confirm)
        task = settings(
            bootstrap(cluster, STALE), "librdkafka", schema=VALUES, fail_on_data_loss=fail
        )
        batches = list(librdkafka_consumer.fetch(OffsetRange(P0, EARLIEST, LATEST), task))

    assert [offset for batch in batches for offset in batch["offset"].to_pylist()] == list(
        range(200)
    )
    assert len(addresses) > 1


@pytest.mark.parametrize("engine", ["wire", "librdkafka"])
@pytest.mark.parametrize("fail", [True, False])
def test_a_range_beyond_the_stale_leaders_end_is_read(engine: str, *, fail: bool) -> None:
    """
    A task loses nothing, and reports no loss, if the first broker that it reaches is stale.
    """
    offset_range = OffsetRange(P0, 50, 200)

    offsets = offsets_read(offset_range, engine, (STALE,), fail_on_data_loss=fail)
    assert offsets == list(range(50, 200))


def test_a_pattern_finds_topics_that_the_first_broker_does_not_know(stubs: StubCluster) -> None:
    """
    Metadata of all topics comes from two brokers as well, if the first broker knows none that
    match.
    """
    options = parse_batch_source(
        {"kafka.bootstrap.servers": bootstrap(stubs, STALE), "subscribePattern": "n.w"}
    )
    assigned = metadata_client(options).assignment(options.strategy)

    assert [tp.topic for tp in assigned.partitions] == ["new"]


def test_topics_are_confirmed_once(stubs: StubCluster) -> None:
    """
    A process confirms a topic by a second broker only once.
    """
    # A response of the stale broker would need one more confirmation.
    stubs.set(stale=())
    planned_end(bootstrap(stubs, 1))
    before = len(stubs.get("metadata_nodes"))
    planned_end(bootstrap(stubs, 1))

    assert before == 2
    assert len(stubs.get("metadata_nodes")) <= before + 1


def test_a_single_broker_gets_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    If a cluster has one broker, a plan sends one request and waits for no other response.
    """
    wait_for_responses(monkeypatch, 300.0)
    with StubCluster(Stale(brokers=1, topics={"t": 1})) as alone:
        # A wait would exceed the time limit of the test.
        assert planned_end(bootstrap(alone, 0)) == 100
        assert len(alone.get("metadata_nodes")) == 1


def wait_for_responses(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """
    Set how long a plan waits for the response of a second broker.
    """
    monkeypatch.setattr(metadata_reader, "_SECOND_RESPONSE_SECONDS", seconds)
    monkeypatch.setattr(metadata_reader, "_CONFIRMATION_SECONDS", seconds)


class Silent(Behaviour):
    """
    Brokers, some of which accept connections but never respond to ``silent_apis``.
    """

    silent: tuple[int, ...] = ()
    silent_apis: tuple[int, ...] = (METADATA, API_VERSIONS)

    def delay(self, node: int, api_key: int) -> float:
        return 3600.0 if node in self.silent and api_key in self.silent_apis else 0.0


def planning_seconds(servers: str, **strategy: str) -> float:
    """
    Return how long a new query takes to find its partitions.
    """
    started_at = time.monotonic()
    options = parse_batch_source({"kafka.bootstrap.servers": servers, **strategy})
    metadata_client(options).assignment(options.strategy)
    return time.monotonic() - started_at


@pytest.mark.parametrize("apis", [(METADATA, API_VERSIONS), (METADATA,)])
def test_a_silent_second_broker_delays_one_plan(
    apis: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The first plan waits for a silent second broker; for a while other plans do not, whether they
    name topics or a pattern.
    """
    topics = {"t": 1, "u": 1, "v": 1}
    with StubCluster(Silent(brokers=2, topics=topics, silent=(1,), silent_apis=apis)) as stubs:
        servers = bootstrap(stubs, 0)
        assert planning_seconds(servers, subscribe="t") > 1.5
        wait_for_responses(monkeypatch, 300.0)
        # Another wait would exceed the time limit of the test.
        for strategy in ({"subscribe": "u"}, {"subscribe": "v"}, {"subscribePattern": "w.*"}):
            planning_seconds(servers, **strategy)


def test_metadata_that_no_second_broker_confirms_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """
    A plan that two brokers confirm logs nothing; a plan that only one of two brokers confirms logs
    a warning.
    """
    wait_for_responses(monkeypatch, 1.0)
    with StubCluster(Silent(brokers=2, topics={"t": 1, "u": 1})) as stubs:
        planning_seconds(bootstrap(stubs, 0), subscribe="t")
        assert not [line for line in caplog.messages if "alone returns metadata" in line]
        stubs.set(silent=(1,))
        planning_seconds(bootstrap(stubs, 0), subscribe="u")

    assert [line for line in caplog.messages if "alone returns metadata" in line]


class Forgetful(Silent):
    """
    The first broker may have forgotten its topics, while the second does not respond.
    """

    forgotten = False

    def topics_of(self, node: int) -> dict[str, int]:
        return {} if self.forgotten and node == 0 else super().topics_of(node)


def test_one_broker_alone_does_not_report_a_topic_as_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    A task whose topic is unknown to one broker, while no other broker responds, does not take the
    topic for deleted.
    """
    wait_for_responses(monkeypatch, 1.0)
    with StubCluster(Forgetful(brokers=2, silent=(1,), forgotten=True)) as stubs:
        cluster = Cluster(wire_config(KafkaSettings.of({"bootstrap.servers": bootstrap(stubs, 0)})))
        with pytest.raises(BrokerUnavailableError, match="t as missing or changed, and no other"):
            cluster.leader(P0, soon())
        cluster.close()


@pytest.mark.parametrize(
    "describe",
    [
        lambda backend: backend.describe_topics(["t"]),
        lambda backend: backend.describe_matching_topics(lambda name: name == "t"),
        lambda backend: backend.list_offsets({P0: LATEST}),
    ],
    ids=["topics", "pattern", "offsets"],
)
def test_one_broker_alone_does_not_remove_a_topic_from_a_plan(
    monkeypatch: pytest.MonkeyPatch, describe: Callable[[WireMetadata], object]
) -> None:
    """
    A topic that a query has planned before is not taken for missing while one broker alone reports
    it as missing.
    """
    wait_for_responses(monkeypatch, 1.0)
    with StubCluster(Forgetful(brokers=2)) as stubs:
        servers = {"bootstrap.servers": stubs.all_brokers, "default.api.timeout.ms": "6000"}
        backend = WireMetadata(KafkaSettings.of(servers), "read_uncommitted")
        backend.describe_topics(["t"])
        describe(backend)
        stubs.set(silent=(1,), forgotten=True)
        monkeypatch.setattr(backend, "_leaders", PartitionLeaders())
        with pytest.raises(PykafkaError) as caught:
            describe(backend)

    assert caught.value.retriable
    assert not isinstance(caught.value, UnknownTopicError)


def test_a_silent_second_broker_behind_an_alias(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    After the first response, requests to that broker's alias and to a silent broker share one
    deadline.
    """
    wait_for_responses(monkeypatch, 1.0)
    with StubCluster(Silent(brokers=2, topics={"t": 1}, silent=(1,))) as stubs:
        turns = iter(range(1_000_000))
        config = wire_config(KafkaSettings.of({"bootstrap.servers": f"localhost:{stubs.ports[0]}"}))
        # The alias comes before the silent broker.
        cluster = Cluster(config, jitter=lambda: float(next(turns)))
        request, deadlines = BrokerSelector.request_from_any, list[float]()

        def record(self: BrokerSelector, send: Any, used: Any, deadline: Deadline) -> Any:
            deadlines.append(deadline.at)
            return request(self, send, used, deadline)

        monkeypatch.setattr(BrokerSelector, "request_from_any", record)
        cluster.metadata(("t",), soon())
        cluster.close()
    first, *further = deadlines
    assert len(further) == 2
    assert further[0] == further[1] < first


def test_a_second_broker_that_is_down_costs_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A plan does not wait for a second broker that refuses connections.
    """
    # Waiting for the second broker would exceed the time limit of the test.
    wait_for_responses(monkeypatch, 300.0)
    with StubCluster(Silent(brokers=2, topics={"t": 1})) as stubs:
        stubs.set(ports=[stubs.ports[0], unused_address()[1]])
        planning_seconds(bootstrap(stubs, 0), subscribe="t")


def test_a_second_broker_that_refuses_the_login(
    stubs: StubCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """
    The login worked at the first broker, so the plan goes on, with a warning, and the third broker
    is used.
    """
    stubs.set(stale=(2,))
    connect = ConnectionCache.open

    def refuse(cache: ConnectionCache, address: Address, deadline: Deadline) -> Connection:
        if address.port == stubs.ports[1]:
            msg = f"{address} refused the login of the user u"
            raise AuthenticationError(msg)
        return connect(cache, address, deadline)

    monkeypatch.setattr(ConnectionCache, "open", refuse)
    for _ in range(4):
        monkeypatch.setattr(last_seen_epochs, "LAST_SEEN_EPOCHS", LastSeenEpochs())
        stubs.set(metadata_nodes=())
        cluster = cluster_of(bootstrap(stubs, 0))
        cluster.metadata(("t",), soon())
        cluster.close()
        assert stubs.get("metadata_nodes") == (0, 2)
    assert "refused the login of the user u" in caplog.text
    with pytest.raises(AuthenticationError, match="refused the login"):
        cluster_of(bootstrap(stubs, 1)).metadata(("t",), soon())


class Moved(Stale):
    """
    The stale broker does not know the broker that leads now.
    """

    def _on_3(self, node: int, request: Any) -> Any:
        answer = super()._on_3(node, request)
        if node in self.stale:
            answer.brokers = [broker for broker in answer.brokers if broker.node_id != 1]
        return answer


@pytest.mark.parametrize("nodes", [(STALE,), (2, STALE), (1, STALE)])
def test_a_leader_that_the_stale_broker_does_not_know(nodes: tuple[int, ...]) -> None:
    """
    Offsets come from the new leader, since the brokers of both responses are known.
    """
    with StubCluster(Moved(brokers=3, topics={"t": 1})) as stubs:
        assert planned_end(bootstrap(stubs, *nodes)) == 200


@pytest.mark.parametrize("version", [9, 7])
def test_a_batch_from_brokers_without_topic_ids(version: int) -> None:
    """
    Leader epochs alone show which metadata is later (Kafka 2.1 to 2.7).
    """
    with StubCluster(Stale(brokers=3, topics={"t": 1})) as stubs:
        versions = stubs.get("versions")
        stubs.set(versions={**versions, METADATA: (4, version)})
        assert planned_end(bootstrap(stubs, STALE)) == 200


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
def test_an_alias_of_the_stale_broker(stubs: StubCluster, name: str) -> None:
    """
    A bootstrap server that leads to the stale broker does not count as a second one.
    """
    for _ in range(4):
        last_seen_epochs.LAST_SEEN_EPOCHS = LastSeenEpochs()
        assert planned_end(f"{name}:{stubs.ports[STALE]}") == 200


def test_stale_metadata_is_rejected_in_the_whole_process(stubs: StubCluster) -> None:
    """
    After any connection of the process has seen a leader epoch, older metadata is rejected, and the
    next broker is used.
    """
    servers = bootstrap(stubs, 1, STALE)
    first = cluster_of(servers)
    assert first.leader(P0, soon()).epoch == 5
    first.close()

    later = cluster_of(servers)
    later.demote(later.config.bootstrap[0])
    assert later.leader(P0, soon()).node == 1
    later.close()
    assert stubs.get("metadata_nodes")[:2] == (1, STALE)


def test_stale_brokers_alone_are_an_error(stubs: StubCluster) -> None:
    """
    If no broker that is up to date responds, the error says so; the old leader is not read from.
    """
    servers = bootstrap(stubs, STALE)
    cluster = cluster_of(servers)
    cluster.invalidate_metadata("t")
    stubs.set(stale=())
    assert cluster.leader(P0, soon()).epoch == 5
    cluster.invalidate_metadata("t")
    stubs.set(stale=(0, 1, 2))

    with pytest.raises(BrokerUnavailableError, match="leader epoch 4 for t-0, not 5; are brokers"):
        cluster.leader(P0, soon())
    cluster.close()


def test_another_broker_is_used_after_a_failure(stubs: StubCluster) -> None:
    """
    A writer that believes the stale broker first, and fails there, then finds the new leader.
    """
    cluster = cluster_of(bootstrap(stubs, STALE, 1), creates_topics=True)
    assert cluster.leader(P0, soon()).node == STALE
    cluster.invalidate_metadata("t")

    assert cluster.leader(P0, soon()).node == 1
    cluster.close()


def test_a_new_topic_is_found(stubs: StubCluster) -> None:
    """
    A topic that the first broker does not know is found at another, in tasks and on the driver.
    """
    cluster = cluster_of(bootstrap(stubs, STALE, 1))
    assert cluster.leader(TopicPartition("new", 0), soon()).node == 1
    cluster.close()
    query = stream(bootstrap(stubs, STALE), subscribe="new")

    assert query.latest_offset(query.initial_offset())["new"]["0"] == 200


def test_an_unknown_topic_fails_soon(stubs: StubCluster) -> None:
    """
    A misspelt name is an error as soon as several brokers have reported it as missing.
    """
    cluster = cluster_of(bootstrap(stubs, STALE, 1, 2))
    deadline = Deadline.after(600)
    with pytest.raises(UnknownTopicError, match="do not have the topic misspelt"):
        cluster.leader(TopicPartition("misspelt", 0), deadline)
    assert not deadline.expired
    cluster.close()
    assert sorted(stubs.get("metadata_nodes")) == [0, 1, 2]


def test_a_single_broker_is_believed() -> None:
    """
    If there is only one broker, its metadata counts.
    """
    with StubCluster(Behaviour()) as stubs:
        cluster = cluster_of(stubs.bootstrap)
        with pytest.raises(UnknownTopicError, match="do not have the topic misspelt"):
            cluster.leader(TopicPartition("misspelt", 0), soon())
        cluster.close()
        requests = stubs.stats()["requests"][METADATA]

    assert requests == 1


def test_a_topic_of_a_pattern_does_not_come_and_go(stubs: StubCluster) -> None:
    """
    A subscribed topic does not vanish when the stale broker, which does not have it, responds.
    """
    stubs.set(stale=())
    query = stream(bootstrap(stubs, STALE), subscribePattern="new|t")
    offset = query.latest_offset(query.initial_offset())
    stubs.set(stale=(STALE,), metadata_nodes=())
    while STALE not in stubs.get("metadata_nodes"):
        offset = query.latest_offset(offset)
        assert sorted(name for name in offset if not name.startswith("@")) == ["new", "t"]


def test_a_new_partition_is_not_reported_as_lost() -> None:
    """
    A restarted query whose broker does not know a new partition continues to read that partition.
    """
    with StubCluster(Stale(brokers=3, topics={"t": 2})) as stubs:
        query = stream(bootstrap(stubs, STALE))
        offset = query.latest_offset({"t": {"0": 150, "1": 150}})

    assert offset["t"] == {"0": 200, "1": 200}


class NoIds(Stale):
    """
    A stale broker that cannot issue producer ids, which come from its controllers.
    """

    ids_requested_from: tuple[int, ...] = ()

    def _on_22(self, node: int, request: Any) -> Any:
        self.ids_requested_from += (node,)
        response = super()._on_22(node, request)
        if node in self.stale:
            response.error_code = 14
        return response


def test_producer_ids_come_from_other_brokers(write: Callable[..., int]) -> None:
    """
    A writer that connects to the stale broker first gets its producer id from another broker.
    """
    with StubCluster(NoIds(brokers=3)) as stubs:
        assert write(bootstrap(stubs, STALE)) == 1
        assert stubs.get("ids_requested_from") == (STALE, 1) or stubs.get("ids_requested_from") == (
            STALE,
            2,
        )


@pytest.fixture
def write() -> Callable[..., int]:
    """
    Return a function that writes one row.
    """
    import pyarrow as pa

    from pyspark_pykafka.engines.wire.producer.producer import produce

    def once(servers: str, changed: Mapping[str, str] | None = None) -> int:
        batch = pa.RecordBatch.from_pydict({"value": pa.array([b"v"], pa.binary())})
        settings = {"bootstrap.servers": servers, "max.block.ms": "10000", **(changed or {})}
        return produce([batch], KafkaSettings.of(settings), "t")

    return once


class Alone(Stale):
    """
    A stale broker that commits no records, since no replica fetches from it any more.
    """

    written: tuple[int, ...] = ()

    def _on_0(self, node: int, request: Any) -> Any:
        self.written += (node,)
        response = super()._on_0(node, request)
        for topic in response.responses:
            for partition in topic.partition_responses:
                partition.error_code = _REQUEST_TIMED_OUT if node in self.stale else 0
        return response


def test_a_writer_leaves_a_leader_without_replicas(write: Callable[..., int]) -> None:
    """
    After the stale leader reports a timeout, the retry goes to the true leader.
    """
    with StubCluster(Alone(brokers=3)) as stubs:
        assert write(bootstrap(stubs, STALE)) == 1
        assert stubs.get("written") == (STALE, 1)


class Unanswering(Alone):
    """
    A stale broker that waits for its replicas, as real ones do until the request times out.
    """

    def delay(self, node: int, api_key: int) -> float:
        return 3600.0 if node in self.stale and api_key == PRODUCE else 0.0


def test_a_writer_does_not_wait_for_a_deposed_leader(write: Callable[..., int]) -> None:
    """
    While a leader does not answer, the writer looks for another one, before the request times out.
    """
    with StubCluster(Unanswering(brokers=3)) as stubs:
        # The request would time out after the test.
        assert write(bootstrap(stubs, STALE), {"request.timeout.ms": "300000"}) == 1
        assert stubs.get("written") == (1,)


class SlowLeader(Behaviour):
    """
    A leader that responds to Produce after five seconds.
    """

    def delay(self, node: int, api_key: int) -> float:  # noqa: ARG002
        return 5.0 if api_key == PRODUCE else 0.0


def test_a_writer_waits_for_a_slow_leader(write: Callable[..., int]) -> None:
    """
    A leader that other brokers confirm gets no batch twice.
    """
    with StubCluster(SlowLeader(brokers=3)) as stubs:
        assert write(stubs.all_brokers) == 1
        requests = stubs.stats()["requests"][PRODUCE]

    assert requests == 1


class NoCoordinators(Stale):
    """
    A stale broker that does not know the coordinators: their internal topics were created while it
    was cut off.
    """

    def _on_10(self, node: int, request: Any) -> Any:
        response = super()._on_10(node, request)
        if node in self.stale:
            for coordinator in response.coordinators:
                coordinator.error_code = _COORDINATOR_NOT_AVAILABLE
        return response


def test_coordinators_are_found_by_another_broker() -> None:
    """
    A writer that knows only the stale broker asks another one for its coordinator.
    """
    with StubCluster(NoCoordinators(brokers=3)) as stubs:
        servers = {"bootstrap.servers": bootstrap(stubs, STALE), "max.block.ms": "10000"}
        config = wire_producer_config(KafkaSettings.of(servers))
        cluster = Cluster(config.wire)
        description = Transactions(cluster, config).describe("w-0-0")
        cluster.close()

    assert description is None
