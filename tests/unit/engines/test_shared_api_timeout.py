"""
One timeout covers all requests of a plan, or of a command that reads.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.support.clock import Clock
from tests.support.stub_brokers import Behaviour, StubCluster

from pyspark_pykafka.cli import main
from pyspark_pykafka.engines import first_contact
from pyspark_pykafka.engines.first_contact import request_seconds, shared_api_timeout
from pyspark_pykafka.engines.wire.consumer import metadata
from pyspark_pykafka.engines.wire.network import api_timeout
from pyspark_pykafka.errors import PykafkaError
from pyspark_pykafka.options import parse_batch_source, parse_stream_source
from pyspark_pykafka.schema import SOURCE_TYPES
from pyspark_pykafka.settings import KafkaSettings
from pyspark_pykafka.spark.batch_reader import KafkaBatchReader
from pyspark_pykafka.spark.stream_reader import _AdmissionStreamReader, _LegacyStreamReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark_pykafka.options import SourceOptions

KAFKA = KafkaSettings.of({"bootstrap.servers": "b:1", "default.api.timeout.ms": "8000"})
SCHEMA = pa.schema([pa.field("value", SOURCE_TYPES["value"])])


def test_the_time_of_earlier_requests_is_subtracted() -> None:
    """
    Each request gets the time that earlier requests have left, and none after the timeout has
    passed.
    """
    clock = Clock()
    with shared_api_timeout(KAFKA, clock.now):
        first = request_seconds(KAFKA)
        clock.sleep(5)
        second = request_seconds(KAFKA)
        clock.sleep(5)
        assert (first, second, request_seconds(KAFKA)) == (8.0, 3.0, 0.0)

    assert request_seconds(KAFKA) == 8.0


def test_an_inner_call_does_not_extend_the_timeout() -> None:
    """
    A call inside a plan that would start a timeout of its own keeps the timeout of the plan.
    """
    clock = Clock()
    with shared_api_timeout(KAFKA, clock.now):
        clock.sleep(5)
        with shared_api_timeout(KAFKA, clock.now):
            assert request_seconds(KAFKA) == 3.0
        assert request_seconds(KAFKA) == 3.0


def test_requests_of_other_threads_keep_their_timeout() -> None:
    """
    Progress that another thread records while a plan waits does not use the plan's timeout.
    """
    clock = Clock()
    with shared_api_timeout(KAFKA, clock.now), ThreadPoolExecutor(1) as other:
        clock.sleep(5)
        assert other.submit(request_seconds, KAFKA).result() == 8.0


def test_the_first_contact_has_a_shorter_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The first contact is limited to 10 s, and to the time that the plan has left.
    """
    monkeypatch.setattr(first_contact, "_reached", set())
    kafka, clock = KafkaSettings.of({"bootstrap.servers": "b:1"}), Clock()
    with shared_api_timeout(kafka, clock.now):
        assert request_seconds(kafka) == 10.0
        clock.sleep(55)
        assert request_seconds(kafka) == 5.0


@pytest.fixture(scope="module")
def stubs() -> Iterator[StubCluster]:
    """
    Run a broker with a topic of one partition.
    """
    with StubCluster(Behaviour()) as started:
        yield started


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """
    Record the time that each request may take.
    """
    recorded: list[float] = []
    retry = api_timeout.retry_within_api_timeout

    def recording(kafka: KafkaSettings, request: Any) -> Any:
        recorded.append(request_seconds(kafka))
        return retry(kafka, request)

    monkeypatch.setattr(metadata, "retry_within_api_timeout", recording)
    return recorded


def options_of(stubs: StubCluster, **options: str) -> dict[str, str]:
    """
    Return the options of a read whose start and end each need several requests.
    """
    return {
        "kafka.bootstrap.servers": stubs.bootstrap,
        "subscribe": "t",
        "startingTimestamp": "1000",
        "startingOffsetsByTimestampStrategy": "latest",
        **options,
    }


def initial_and_latest(make_reader: Callable[[SourceOptions, pa.Schema], Any]) -> Any:
    """
    Return a function that returns the calls of a stream reader, in Spark's order.
    """

    def calls(options: dict[str, str]) -> list[Callable[[], object]]:
        reader = make_reader(parse_stream_source(options), SCHEMA)
        ends: list[Any] = []
        latest = (
            reader.latestOffset
            if make_reader is _LegacyStreamReader
            else lambda: reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
        )
        return [
            reader.initialOffset,
            lambda: ends.append(latest()),
            lambda: reader.partitions(reader.initialOffset(), ends[0]),
        ]

    return calls


def batch(options: dict[str, str]) -> list[Callable[[], object]]:
    """
    Return the call that plans a batch.
    """
    return [KafkaBatchReader(parse_batch_source(options), SCHEMA).partitions]


@pytest.mark.parametrize(
    "calls",
    [batch, initial_and_latest(_LegacyStreamReader), initial_and_latest(_AdmissionStreamReader)],
    ids=["batch", "Spark 4.0 and 4.1", "Spark 4.2"],
)
def test_a_plan_has_one_timeout(
    stubs: StubCluster,
    limits: list[float],
    calls: Callable[[dict[str, str]], list[Callable[[], object]]],
) -> None:
    """
    All requests of one call of Spark share the timeout, and each call has the whole timeout.
    """
    options = options_of(stubs, **{"kafka.default.api.timeout.ms": "8000"})
    last, several = 0.0, False
    for call in calls(options):
        limits.clear()
        call()
        if limits:
            check_shared(limits, last)
            last, several = limits[-1], several or len(limits) > 1
    assert several


def check_shared(limits: list[float], last: float) -> None:
    """
    Check that each request has less time than the one before, and that the first has more than
    ``last``, the time of an earlier call's last request.
    """
    assert limits[0] > last
    assert all(later < earlier for earlier, later in pairwise(limits))


@pytest.mark.parametrize(
    "command",
    [
        "topic describe t",
        "peek --topic t --from -100",
        "schema infer t --from -100",
        "deadletter list --topic t --all",
    ],
)
def test_a_command_has_one_timeout(
    stubs: StubCluster, limits: list[float], command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    The requests that a command makes before it reads records share the timeout.
    """
    main([*command.split(), "--bootstrap-server", stubs.bootstrap, "--timeout", "8"])

    assert capsys.readouterr()
    assert len(limits) > 1
    check_shared(limits, 0.0)


class Unreachable(Behaviour):
    """
    A bootstrap server that responds; it advertises the leader at a port on which nothing listens.
    """

    def port(self, node: int) -> int:  # noqa: ARG002
        return 1


def test_leaders_that_cannot_be_reached() -> None:
    """
    If only the bootstrap servers can be reached, a plan ends with an error that names the leader's
    address and the brokers' setting.
    """
    with StubCluster(Unreachable()) as stubs:
        options = options_of(stubs, **{"kafka.default.api.timeout.ms": "600"})
        with pytest.raises(PykafkaError, match="127.0.0.1:1: .*advertised.listeners") as raised:
            KafkaBatchReader(parse_batch_source(options), SCHEMA).partitions()

    assert raised.value.retriable
