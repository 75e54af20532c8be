"""
The progress store of progressStore=consumerGroup checks the members of its group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.clock import Clock
from tests.support.stub_brokers import Behaviour, StubCluster, StubGroup

from pyspark_pykafka.engines.metadata import MetadataClient
from pyspark_pykafka.engines.selection import metadata_backend
from pyspark_pykafka.errors import ProgressError
from pyspark_pykafka.progress.group_member import INSTANCE
from pyspark_pykafka.progress.group_store import GroupStore
from pyspark_pykafka.progress.record import Owner
from pyspark_pykafka.retry import RetryPolicy
from pyspark_pykafka.settings import KafkaSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

OWNER = Owner("q", "run", 0)


@pytest.fixture(scope="module")
def stubs() -> Iterator[StubCluster]:
    """
    Run a broker, whose groups each test sets.
    """
    with StubCluster(Behaviour()) as started:
        yield started


def store_of(stubs: StubCluster, clock: Clock) -> GroupStore:
    """
    Return the store of the group ``g``.
    """
    kafka = KafkaSettings.of({"bootstrap.servers": stubs.bootstrap, "log_level": "0"})
    backend = metadata_backend(kafka, "read_uncommitted", "auto")
    client = MetadataClient(backend, RetryPolicy(1, 0.0))
    return GroupStore(kafka, "g", client, clock.now, clock.sleep)


@pytest.mark.parametrize(
    ("groups", "has_writer"),
    [
        ({}, False),
        ({"g": StubGroup()}, False),
        ({"g": StubGroup([("a", None), ("b", "another")])}, False),
        ({"g": StubGroup([("a", None), ("reader-q", INSTANCE)])}, True),
    ],
    ids=["no group", "no members", "other members", "a query"],
)
def test_a_query_is_the_writer(
    stubs: StubCluster, groups: dict[str, StubGroup], has_writer: bool
) -> None:
    """
    A group has a writer while the static member of a query is in it.
    """
    stubs.set(groups=groups)

    assert store_of(stubs, Clock()).has_writer() == has_writer


@pytest.mark.parametrize("kind", ["classic", "consumer"])
def test_a_group_with_other_members_is_not_claimed(stubs: StubCluster, kind: str) -> None:
    """
    Members of either protocol that stay longer than a session timeout are an error, which names
    them; the group is not joined.
    """
    stubs.set(groups={"g": StubGroup([("app", None)], kind)})
    clock = Clock()
    started_at = clock.now()

    with pytest.raises(ProgressError, match="is in use by app at 127.0.0.1; ") as raised:
        store_of(stubs, clock).claim(OWNER, ["t"])
    assert raised.value.condition == "PROGRESS_OWNED"
    assert clock.now() - started_at > 10


class _Expiring(Clock):
    """
    A clock on which every session has expired after the first pause.
    """

    def __init__(self, stubs: StubCluster) -> None:
        super().__init__()
        self._stubs = stubs

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self._stubs.set(groups={"g": StubGroup()})


def test_a_group_is_deleted_when_its_members_have_left(stubs: StubCluster) -> None:
    """
    The records of a killed query are deleted once its session has expired.
    """
    stubs.set(groups={"g": StubGroup([("reader-q", INSTANCE)])})
    clock = _Expiring(stubs)
    store_of(stubs, clock).delete_records()

    assert len(clock.slept) == 1
    assert stubs.get("groups") == {}
