"""
How RetryingAdmin limits and retries the requests of librdkafka's admin client.
"""

from __future__ import annotations

import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from tests.support.clock import Clock
from tests.support.fresh_process import output_of

from pyspark_pykafka.engines.librdkafka.admin import RetryingAdmin
from pyspark_pykafka.engines.librdkafka.client import Client
from pyspark_pykafka.engines.librdkafka.producer import produce
from pyspark_pykafka.errors import BrokerUnavailableError, OptionsError, PykafkaError
from pyspark_pykafka.offsets import TopicPartition
from pyspark_pykafka.progress.group_member import GroupMember
from pyspark_pykafka.progress.group_offsets import GroupOffsets
from pyspark_pykafka.progress.record import Owner
from pyspark_pykafka.retry import Deadline
from pyspark_pykafka.settings import KafkaSettings
from pyspark_pykafka.settings.librdkafka_config import consumer_config
from pyspark_pykafka.testing.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka.admin import AdminClient, NewTopic


def test_the_last_request_has_a_minimum_timeout() -> None:
    """
    A request shortly before its deadline gets a timeout of one second: with a few milliseconds
    librdkafka aborts the process when the client is closed.
    """
    admin = RetryingAdmin(KafkaSettings.of({"bootstrap.servers": "127.0.0.1:1", "log_level": "0"}))
    timeouts = []

    def request(_: object, seconds: float) -> dict[str, Future[Any]]:
        timeouts.append(seconds)
        future: Future[Any] = Future()
        future.set_result("done")
        return {"all": future}

    assert admin.call(request, "the request", Deadline.after(0.002)) == {"all": "done"}
    assert timeouts[0] >= 1.0


def create_topic(kafka: KafkaSettings) -> None:
    RetryingAdmin(kafka).create_topic("t", {}, "creating the topic t")


def fetch_offsets(kafka: KafkaSettings) -> None:
    GroupOffsets(kafka, "g", 1.0, None, bool).fetch([TopicPartition("t", 0)])


def join_group(kafka: KafkaSettings) -> None:
    GroupMember(kafka, "g", 1.0, time.monotonic).join(Owner("q", "r", 1), ["t"])


@pytest.mark.parametrize("use", [create_topic, fetch_offsets, join_group])
def test_attempts_to_connect_are_not_logged_one_by_one(
    use: Callable[[KafkaSettings], None], capfd: pytest.CaptureFixture[str]
) -> None:
    """
    While no broker can be reached, the log of the driver's clients has no line for each attempt to
    connect, about 20 a second.
    """
    # Clients of other tests in this process may still be trying to connect to other addresses.
    address = f"127.0.0.1:{free_ports(1)[0]}"
    settings = {"bootstrap.servers": address, "default.api.timeout.ms": "1000"}

    with pytest.raises(PykafkaError):
        use(KafkaSettings.of(settings))

    assert address not in capfd.readouterr().err


class _Failing:
    """
    A client whose requests to create or delete a topic get these errors, one after another.
    """

    def __init__(self, *codes: int) -> None:
        self._codes = iter(codes)

    def create_topics(self, topics: list[NewTopic], **_: object) -> dict[str, Future[None]]:
        future: Future[None] = Future()
        future.set_exception(KafkaException(KafkaError(next(self._codes))))
        return {topics[0].topic: future}

    def delete_topics(self, topics: list[str], **_: object) -> dict[str, Future[None]]:
        future: Future[None] = Future()
        future.set_exception(KafkaException(KafkaError(next(self._codes))))
        return {topics[0]: future}


@pytest.mark.parametrize(
    ("codes", "validate_only", "created"),
    [
        ((KafkaError.TOPIC_ALREADY_EXISTS,), False, False),
        ((KafkaError._TIMED_OUT, KafkaError.TOPIC_ALREADY_EXISTS), False, True),
        ((KafkaError.NOT_CONTROLLER, KafkaError.TOPIC_ALREADY_EXISTS), False, False),
        ((KafkaError._TIMED_OUT, KafkaError.TOPIC_ALREADY_EXISTS), True, False),
    ],
)
def test_a_request_without_a_response_may_have_created_the_topic(
    codes: tuple[int, ...], validate_only: bool, created: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A topic that exists when a request without a response is retried counts as created; after a
    rejected request it does not.
    """
    admin = RetryingAdmin(KafkaSettings.of({"bootstrap.servers": "127.0.0.1:1"}))
    client = _Failing(*codes)
    monkeypatch.setattr(admin, "client", lambda: client)

    assert admin.create_topic("t", {}, "creating", validate_only=validate_only) is created


@pytest.mark.parametrize(
    ("codes", "deleted"),
    [
        ((KafkaError.UNKNOWN_TOPIC_OR_PART,), False),
        ((KafkaError._TIMED_OUT, KafkaError.UNKNOWN_TOPIC_OR_PART), True),
        ((KafkaError.NOT_CONTROLLER, KafkaError.UNKNOWN_TOPIC_OR_PART), False),
    ],
)
def test_a_request_without_a_response_may_have_deleted_the_topic(
    codes: tuple[int, ...], deleted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A topic that is missing when a request without a response is retried counts as deleted; after a
    rejected request it does not.
    """
    admin = RetryingAdmin(KafkaSettings.of({"bootstrap.servers": "127.0.0.1:1"}))
    client = _Failing(*codes)
    monkeypatch.setattr(admin, "client", lambda: client)

    assert admin.delete_topic("t") is deleted


@pytest.mark.parametrize("code", [KafkaError.NOT_COORDINATOR, KafkaError.NOT_CONTROLLER])
def test_a_moved_coordinator_or_controller_is_looked_up_by_a_new_client(code: int) -> None:
    """
    The old client would send its requests to the broker that had the role before.
    """
    admin = RetryingAdmin(KafkaSettings.of({"bootstrap.servers": "127.0.0.1:1", "log_level": "0"}))
    clients: list[AdminClient] = []

    def describe(client: AdminClient, _: float) -> dict[str, Future[str]]:
        future: Future[str] = Future()
        if client in clients or not clients:
            future.set_exception(KafkaException(KafkaError(code)))
        else:
            future.set_result("described")
        clients.append(client)
        return {"group": future}

    assert admin.call(describe, "describing", Deadline.after(30)) == {"group": "described"}
    assert len(clients) == 2


def test_a_role_that_no_broker_takes_is_an_error_at_the_deadline(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """
    Requests that never reach the coordinator fail at the deadline with the broker's error; a log
    line after 5 s says what they are waiting for.
    """
    clock = Clock()
    settings = KafkaSettings.of({"bootstrap.servers": "127.0.0.1:1", "log_level": "0"})

    def describe(_: AdminClient, __: float) -> dict[str, Future[str]]:
        future: Future[str] = Future()
        future.set_exception(KafkaException(KafkaError(KafkaError.NOT_COORDINATOR)))
        return {"group": future}

    deadline = Deadline.after(10, clock.now, clock.sleep)
    with pytest.raises(BrokerUnavailableError, match="NOT_COORDINATOR"):
        RetryingAdmin(settings, clock.now).call(describe, "describing", deadline)
    assert caplog.messages == [
        "describing: the coordinator or the controller is moving; retrying for 5 s at most"
    ]


@pytest.mark.parametrize(
    "use",
    [
        lambda kafka: RetryingAdmin(kafka).client(),
        lambda kafka: produce([], kafka, "t"),
        lambda kafka: Client(consumer_config(kafka, group_id="g")),
        lambda kafka: GroupOffsets(kafka, "g", 1.0, None, bool),
    ],
    ids=["admin", "producer", "consumer", "group"],
)
def test_settings_that_librdkafka_rejects(use: Callable[[KafkaSettings], object]) -> None:
    """
    A keystore that does not exist raises OptionsError, which names the file.
    """
    store = {"ssl.keystore.location": "/no/such/file.p12", "ssl.keystore.password": "SECRET"}
    brokers = {"bootstrap.servers": "127.0.0.1:3", "security.protocol": "SSL"}
    kafka = KafkaSettings.of({**brokers, **store})

    with pytest.raises(OptionsError, match="connecting: .*/no/such/file.p12"):
        use(kafka)


# A silent broker, and a request that its caller abandons because of a rejected login. The error and
# the client are garbage in a cycle, which is collected in librdkafka's thread.
_ABANDONED_REQUEST = """
import gc, threading
from confluent_kafka import KafkaError, TopicCollection
from tests.support.listening import listen
from pyspark_pykafka.engines.librdkafka.admin import RetryingAdmin
from pyspark_pykafka.errors import AuthenticationError
from pyspark_pykafka.settings import KafkaSettings

silent, completed = listen(), threading.Event()
servers = {"bootstrap.servers": "127.0.0.1:%d" % silent.getsockname()[1], "log_level": "0"}

def complete(_):
    gc.collect()
    completed.set()

def leave(admin):
    def describe(client, _):
        futures = client.describe_topics(TopicCollection(["t"]), request_timeout=1.0)
        futures["t"].add_done_callback(complete)
        admin._fatal.record(KafkaError(KafkaError._AUTHENTICATION))
        return futures

    try:
        admin.call(describe, "describing a topic")
    except AuthenticationError as error:
        error.cycle = error

gc.disable()
leave(RetryingAdmin(KafkaSettings.of(servers)))
print(completed.wait(30))
"""


def test_a_request_in_flight_outlives_its_caller() -> None:
    """
    The client of an abandoned request is not destroyed in librdkafka's own thread, which would
    abort the process.
    """
    assert output_of(_ABANDONED_REQUEST) == "True"
