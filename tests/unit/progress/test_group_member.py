"""
Errors while a process joins its consumer group; the client is a stand-in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from confluent_kafka import KafkaError
from tests.support.clock import Clock

from pyspark_pykafka.errors import KafkaClientError, TimeoutExceededError
from pyspark_pykafka.options import parse_stream_source
from pyspark_pykafka.progress import group_member
from pyspark_pykafka.progress.group_member import GroupMember
from pyspark_pykafka.progress.record import Owner
from pyspark_pykafka.progress.store import AFTER_END_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable

OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}
OWNER = Owner("q", "run", 0)


class Message(NamedTuple):
    """
    A message that holds only an error.
    """

    code: int

    def error(self) -> KafkaError:
        return KafkaError(self.code)


class Client:
    """
    Returns the errors in turn; afterwards it is assigned its partitions if ``assigned`` is true.
    """

    def __init__(self, codes: tuple[int, ...], clock: Clock, *, assigned: bool) -> None:
        self._codes = [*codes]
        self._clock = clock
        self._assigned = assigned
        self._on_assign: Callable[[Any, list[Any]], None] | None = None

    def subscribe(self, _: list[str], on_assign: Any, **__: object) -> None:
        self._on_assign = on_assign

    def assign(self, _: list[Any]) -> None: ...

    def poll(self, seconds: float) -> Message | None:
        self._clock.sleep(seconds)
        if self._codes:
            return Message(self._codes.pop(0))
        if self._assigned and self._on_assign is not None:
            self._on_assign(self, [])
        return None


def join(monkeypatch: pytest.MonkeyPatch, *codes: int, assigned: bool = True) -> None:
    """
    Join a group while the client reports these errors.
    """
    clock = Clock()
    client = Client(codes, clock, assigned=assigned)
    monkeypatch.setattr(group_member, "Consumer", lambda _: client)
    member = GroupMember(parse_stream_source(OPTIONS).kafka, "g", 5.0, clock.now)
    member.join(OWNER, ["t"])


@pytest.mark.parametrize(
    "name", ["INVALID_SESSION_TIMEOUT", "GROUP_MAX_SIZE_REACHED", "INVALID_GROUP_ID"]
)
def test_permanent_errors_are_raised(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """
    An error that another attempt would not change ends the join at once, with the name of the
    error.
    """
    with pytest.raises(KafkaClientError, match=f"joining the consumer group g: .*{name}") as caught:
        join(monkeypatch, getattr(KafkaError, name))
    assert not caught.value.retriable


@pytest.mark.parametrize(
    "name",
    [
        *("COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS"),
        *("REBALANCE_IN_PROGRESS", "REQUEST_TIMED_OUT", "_TRANSPORT", "_ALL_BROKERS_DOWN"),
        *("UNKNOWN_TOPIC_OR_PART", "TOPIC_AUTHORIZATION_FAILED", "TOPIC_EXCEPTION"),
        *("_MAX_POLL_EXCEEDED", "_TIMED_OUT"),
    ],
)
def test_transient_errors_do_not_end_the_join(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """
    Transient errors do not end the join, and neither do errors of topics, since the member reads
    none.
    """
    join(monkeypatch, getattr(KafkaError, name))


def test_timeout_has_the_last_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Without an assignment the error has the reason that the client gave last.
    """
    with pytest.raises(TimeoutExceededError, match="within 5.0 s; .*COORDINATOR_NOT_AVAILABLE"):
        join(monkeypatch, KafkaError.COORDINATOR_NOT_AVAILABLE, assigned=False)


@pytest.mark.parametrize(
    ("run", "is_successor"),
    [("run", False), ("another run", True), (f"{AFTER_END_PREFIX}another run", False)],
)
def test_later_process_of_the_query(run: str, is_successor: bool) -> None:
    """
    The client id shows whether a member is another process of the query, except a listener that
    only finishes up after its end.
    """
    member = GroupMember(parse_stream_source(OPTIONS).kafka, "g", 5.0, Clock().now)
    client_id = member.client_id(Owner("q", run, 3))

    assert client_id.startswith("pykafka-q-")
    assert member.is_successor(client_id, OWNER) == is_successor
    assert not member.is_successor(client_id, Owner("another", "run", 2))
