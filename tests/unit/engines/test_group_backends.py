"""
Requests about consumer groups: members, permissions, listing and deleting, while coordinators move,
load their groups or do not respond.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.support.stub_behaviour import (
    CONSUMER_GROUP_DESCRIBE,
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    LIST_GROUPS,
)
from tests.support.stub_brokers import Behaviour, StubCluster, StubGroup

from pyspark_pykafka.engines.group_contract import GroupDescription, MemberDescription
from pyspark_pykafka.engines.librdkafka.groups import AdminGroups
from pyspark_pykafka.engines.selection import group_backend
from pyspark_pykafka.engines.wire.consumer.groups import WireGroups
from pyspark_pykafka.engines.wire.network import api_timeout
from pyspark_pykafka.errors import (
    AuthorizationError,
    KafkaClientError,
    PykafkaError,
    TimeoutExceededError,
)
from pyspark_pykafka.settings import KafkaSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark_pykafka.engines.group_contract import GroupBackend

    MakeBackend = Callable[[KafkaSettings], GroupBackend]

UNSUPPORTED_VERSION, UNKNOWN_SERVER_ERROR = 35, -1
GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED = 30, 29
COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR = 14, 15, 16
#: The timeout of requests that get no response.
WAIT_MS = 800
#: The first attempt of the wire engine takes at most this long here, so that no test waits long.
ATTEMPT_SECONDS = 0.4

BACKENDS = pytest.mark.parametrize("backend", [WireGroups, AdminGroups])


class Groups(Behaviour):
    """
    Two brokers; attributes change how they answer.
    """

    def __init__(self, **attributes: Any) -> None:
        #: The node that is the coordinator.
        self.home = 0
        #: The node that the brokers name as the coordinator, or None if they name ``home``.
        self.named: int | None = None
        #: An error code by API, and how many responses have it.
        self.errors: dict[int, tuple[int, int]] = {}
        #: The nodes that do not answer the requests of an API, by API.
        self.silent: dict[int, set[int]] = {}
        #: Whether the other broker becomes the coordinator after a request without an answer.
        self.fails_over = False
        super().__init__(**{"brokers": 2, **attributes})

    def coordinator(self, name: str) -> int:
        if name.startswith("other"):
            return 1 - self.home
        return self.home if self.named is None else self.named

    def _planned(self, api_key: int) -> int:
        code, left = self.errors.get(api_key, (0, 0))
        if left:
            self.errors[api_key] = (code, left - 1)
        return code if left else 0

    def coordinator_error(self, _node: int, _name: str) -> int:
        return self._planned(FIND_COORDINATOR)

    def group_error(self, node: int, api_key: int, _group: str) -> int:
        if api_key != LIST_GROUPS and node != self.home:
            # The brokers learn of the move with this response.
            self.named = None
            return NOT_COORDINATOR
        return self._planned(api_key)

    def answer(self, node: int, api_key: int, version: int, body: bytes) -> bytes | None:
        response = super().answer(node, api_key, version, body)
        if node not in self.silent.get(api_key, ()):
            return response
        self.home = 1 - node if self.fails_over else self.home
        return None


@pytest.fixture(scope="module")
def started() -> Iterator[StubCluster]:
    """
    Run the brokers for all tests, since starting them takes longer than a test.
    """
    with StubCluster(Groups()) as stubs:
        yield stubs


@pytest.fixture
def stubs(started: StubCluster) -> StubCluster:
    """
    Return the brokers, reset to their initial state.
    """
    started.set(**{**vars(Groups()), "ports": started.ports})
    return started


@pytest.fixture(autouse=True)
def short_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Let the first attempt of a request end early.
    """
    monkeypatch.setattr(api_timeout, "_FIRST_ATTEMPT_SECONDS", ATTEMPT_SECONDS)


def settings_of(stubs: StubCluster, **settings: str) -> KafkaSettings:
    """
    Return the settings of a client of the brokers; keywords have underscores for dots.
    """
    changed = {name.replace("_", "."): text for name, text in settings.items()}
    return KafkaSettings.of({"bootstrap.servers": stubs.bootstrap, "log_level": "0", **changed})


MEMBERS = [("reader-q", "pykafka-progress"), ("c", None)]
DESCRIBED = (
    MemberDescription("reader-q", "/127.0.0.1", "pykafka-progress"),
    MemberDescription("c", "/127.0.0.1", None),
)


@pytest.mark.parametrize("home", [0, 1])
@BACKENDS
def test_a_group_has_its_members(stubs: StubCluster, backend: MakeBackend, home: int) -> None:
    """
    A group's coordinator is found, and returns the members with their addresses and instance ids.
    """
    stubs.set(home=home, groups={"g": StubGroup(MEMBERS)})

    assert backend(settings_of(stubs)).describe("g").members == DESCRIBED


@BACKENDS
def test_a_missing_group_has_no_members(stubs: StubCluster, backend: MakeBackend) -> None:
    """
    A group that does not exist has no members, and its permissions are known.
    """
    described = backend(settings_of(stubs)).describe("g", include_operations=True)

    assert described == GroupDescription((), frozenset({"READ", "DELETE", "DESCRIBE"}))


@pytest.mark.parametrize("kind", ["classic", "consumer"])
def test_permissions_are_returned_on_request(stubs: StubCluster, kind: str) -> None:
    """
    The authorized operations are those of the response; they are unknown if they were not
    requested.
    """
    stubs.set(groups={"g": StubGroup(MEMBERS, kind)}, group_operations=frozenset({8, 10}))
    groups = WireGroups(settings_of(stubs))

    described = groups.describe("g", include_operations=True)

    assert described.operations == frozenset({"DESCRIBE", "DESCRIBE_CONFIGS"})
    assert groups.describe("g").operations is None


def test_a_group_of_the_new_protocol_has_its_members(stubs: StubCluster) -> None:
    """
    The members of a group of the type consumer (KIP-848), which DescribeGroups reports as dead, are
    described with ConsumerGroupDescribe.
    """
    stubs.set(groups={"g": StubGroup(MEMBERS, "consumer")})

    assert WireGroups(settings_of(stubs)).describe("g").members == DESCRIBED


def test_brokers_on_which_the_new_protocol_is_disabled(stubs: StubCluster) -> None:
    """
    Brokers that reject ConsumerGroupDescribe describe a missing group without an error.
    """
    stubs.set(errors={CONSUMER_GROUP_DESCRIBE: (UNSUPPORTED_VERSION, 1)})

    assert WireGroups(settings_of(stubs)).describe("g") == GroupDescription((), None)
    assert stubs.stats()["requests"][CONSUMER_GROUP_DESCRIBE] == 1


def test_old_brokers() -> None:
    """
    The oldest supported versions give the same description, also where ConsumerGroupDescribe is
    missing.
    """
    behaviour = Groups(groups={"g": StubGroup(MEMBERS)})
    behaviour.versions |= {DESCRIBE_GROUPS: (0, 4), FIND_COORDINATOR: (0, 2)}
    del behaviour.versions[CONSUMER_GROUP_DESCRIBE]
    with StubCluster(behaviour) as stubs:
        groups = WireGroups(settings_of(stubs))
        assert groups.describe("g").members == DESCRIBED
        assert groups.describe("missing") == GroupDescription((), None)


@BACKENDS
def test_a_coordinator_that_has_moved_is_looked_up_again(
    stubs: StubCluster, backend: MakeBackend
) -> None:
    """
    If the broker that was the coordinator rejects a request, the new coordinator is found.
    """
    stubs.set(home=1, named=0, groups={"g": StubGroup(MEMBERS)})
    groups = backend(settings_of(stubs))

    assert groups.describe("g").members == DESCRIBED
    stubs.set(home=0)
    assert groups.describe("g").members == DESCRIBED


@pytest.mark.parametrize(
    ("backend", "code"),
    [
        (WireGroups, COORDINATOR_LOAD_IN_PROGRESS),
        (WireGroups, COORDINATOR_NOT_AVAILABLE),
        (WireGroups, UNKNOWN_SERVER_ERROR),
        (AdminGroups, COORDINATOR_LOAD_IN_PROGRESS),
        (AdminGroups, COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_a_coordinator_that_loads_its_groups_is_waited_for(
    stubs: StubCluster, backend: MakeBackend, code: int
) -> None:
    """
    Errors of a coordinator that has just started, or that failed temporarily, are retried.
    """
    stubs.set(groups={"g": StubGroup(MEMBERS)}, errors={DESCRIBE_GROUPS: (code, 2)})

    assert backend(settings_of(stubs)).describe("g").members == DESCRIBED


@pytest.mark.parametrize(
    ("api_key", "kind", "expected"),
    [
        (FIND_COORDINATOR, "classic", "finding the coordinator of g: "),
        (DESCRIBE_GROUPS, "classic", "describing the consumer group g: "),
        (CONSUMER_GROUP_DESCRIBE, "consumer", "describing the consumer group g: "),
    ],
)
def test_a_missing_permission_is_an_error_at_once(
    stubs: StubCluster, api_key: int, kind: str, expected: str
) -> None:
    """
    The error names the group, Kafka's error and the permission; nothing is retried.
    """
    denied = (GROUP_AUTHORIZATION_FAILED, 10**9)
    stubs.set(groups={"g": StubGroup(MEMBERS, kind)}, errors={api_key: denied})
    expected += r".*\(GROUP_AUTHORIZATION_FAILED\).*allow Describe.* on the consumer group g"

    with pytest.raises(AuthorizationError, match=expected):
        WireGroups(settings_of(stubs)).describe("g")
    assert stubs.stats()["requests"][api_key] == 1


def test_the_topics_of_members_may_be_hidden(stubs: StubCluster) -> None:
    """
    A group of the type consumer is described only to users who may describe its topics; the error
    names that permission.
    """
    denied = (TOPIC_AUTHORIZATION_FAILED, 1)
    stubs.set(
        groups={"g": StubGroup(MEMBERS, "consumer")}, errors={CONSUMER_GROUP_DESCRIBE: denied}
    )

    with pytest.raises(AuthorizationError, match="allow Describe on the topics that .* g "):
        WireGroups(settings_of(stubs)).describe("g")


def test_a_silent_coordinator_is_looked_up_again(stubs: StubCluster) -> None:
    """
    A coordinator that does not respond may have been replaced: the new one is found.
    """
    stubs.set(groups={"g": StubGroup(MEMBERS)}, silent={DESCRIBE_GROUPS: {0}}, fails_over=True)

    assert WireGroups(settings_of(stubs)).describe("g").members == DESCRIBED
    assert stubs.get("home") == 1


def test_a_coordinator_that_never_responds_is_an_error(
    stubs: StubCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """
    After kafka.default.api.timeout.ms the error names the action and the broker; before that, a log
    line says what is waited for.
    """
    monkeypatch.setattr(api_timeout, "LONG_WAIT_SECONDS", 0.1)
    stubs.set(silent={DESCRIBE_GROUPS: {0}})
    groups = WireGroups(settings_of(stubs, default_api_timeout_ms=str(WAIT_MS)))

    expected = f"describing the consumer group g: .*127.0.0.1:{stubs.ports[0]}"
    with pytest.raises(TimeoutExceededError, match=expected):
        groups.describe("g")
    (line,) = [line for line in caplog.messages if "retrying for" in line]
    assert line.startswith("describing the consumer group g: ")


@BACKENDS
def test_the_groups_of_all_brokers_are_listed(stubs: StubCluster, backend: MakeBackend) -> None:
    """
    The listing has the consumer groups of all coordinators, in order, and no groups of another
    protocol type, such as Kafka Connect's.
    """
    groups = {
        "b": StubGroup(MEMBERS),
        "other": StubGroup([], "consumer"),
        "a": StubGroup([], protocol_type=""),
        "connect": StubGroup([], protocol_type="connect"),
    }
    stubs.set(groups=groups)

    assert backend(settings_of(stubs)).list_groups() == ["a", "b", "other"]


def test_a_listing_waits_for_coordinators_that_load_their_groups(stubs: StubCluster) -> None:
    """
    A listing is requested again until every broker returns its groups.
    """
    groups = {"g": StubGroup(MEMBERS), "other": StubGroup(MEMBERS)}
    stubs.set(groups=groups, errors={LIST_GROUPS: (COORDINATOR_LOAD_IN_PROGRESS, 3)})

    assert WireGroups(settings_of(stubs)).list_groups() == ["g", "other"]


def test_a_listing_without_a_brokers_groups_is_an_error(stubs: StubCluster) -> None:
    """
    If a broker does not respond until the deadline, the listing fails.
    """
    stubs.set(groups={"g": StubGroup(MEMBERS)}, silent={LIST_GROUPS: {1}})
    short = settings_of(stubs, default_api_timeout_ms=str(WAIT_MS))

    with pytest.raises(TimeoutExceededError, match="listing the consumer groups: "):
        WireGroups(short).list_groups()


@BACKENDS
def test_a_group_is_deleted(stubs: StubCluster, backend: MakeBackend) -> None:
    """
    A group without members is deleted; deleting a missing group is not an error.
    """
    stubs.set(groups={"g": StubGroup(), "h": StubGroup()})
    groups = backend(settings_of(stubs))

    groups.delete("g")
    groups.delete("g")

    assert [*stubs.get("groups")] == ["h"]


@BACKENDS
def test_a_group_with_members_is_not_deleted(stubs: StubCluster, backend: MakeBackend) -> None:
    """
    The error has Kafka's name, and is not retriable.
    """
    stubs.set(groups={"g": StubGroup(MEMBERS)})

    with pytest.raises(KafkaClientError, match="deleting the consumer group g: ") as raised:
        backend(settings_of(stubs)).delete("g")
    assert (raised.value.name, raised.value.retriable) == ("NON_EMPTY_GROUP", False)


def test_a_deletion_without_a_response_is_repeated(stubs: StubCluster) -> None:
    """
    A group that is gone when the request is repeated counts as deleted.
    """
    stubs.set(groups={"g": StubGroup()}, silent={DELETE_GROUPS: {0}}, fails_over=True)

    WireGroups(settings_of(stubs)).delete("g")

    assert stubs.get("groups") == {}
    assert stubs.stats()["requests"][DELETE_GROUPS] == 2


def test_a_deletion_needs_a_permission(stubs: StubCluster) -> None:
    """
    Without the permission Delete, the error names it.
    """
    denied = (GROUP_AUTHORIZATION_FAILED, 1)
    stubs.set(groups={"g": StubGroup()}, errors={DELETE_GROUPS: denied})

    with pytest.raises(AuthorizationError, match="allow Delete on the consumer group g"):
        WireGroups(settings_of(stubs)).delete("g")


PLAIN = {"bootstrap.servers": "b:1"}
LIBRDKAFKA_ONLY: list[dict[str, str]] = [
    {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI"},
    {"security.protocol": "SSL", "ssl.keystore.location": "/store.p12"},
    {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
    },
]


def test_groups_are_requested_with_wire() -> None:
    """
    The wire engine's connections are used, for which no compiled module is needed.
    """
    assert isinstance(group_backend(KafkaSettings.of(PLAIN)), WireGroups)


@pytest.mark.parametrize("settings", LIBRDKAFKA_ONLY)
def test_settings_of_librdkafka_use_librdkafka(settings: dict[str, str]) -> None:
    """
    Settings that only librdkafka supports go to librdkafka.
    """
    assert isinstance(group_backend(KafkaSettings.of({**PLAIN, **settings})), AdminGroups)


def test_no_broker_is_reached() -> None:
    """
    The error names the action and the broker.
    """
    kafka = KafkaSettings.of({"bootstrap.servers": "127.0.0.1:3", "default.api.timeout.ms": "300"})
    with pytest.raises(
        PykafkaError, match="describing the consumer group g: .*127.0.0.1:3"
    ) as raised:
        WireGroups(kafka).describe("g")
    assert raised.value.retriable
