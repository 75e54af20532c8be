"""
Transactions that ZooKeeper refuses, with a fake kazoo client. kazoo does not raise their errors: it
returns them as the results of the steps.
"""

from __future__ import annotations

import socket
import threading
import time
from typing import Any, NamedTuple

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    InvalidACLError,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
)

from pyspark_pykafka.errors import AuthorizationError, BrokerUnavailableError, ProgressError
from pyspark_pykafka.offsets import TopicPartition
from pyspark_pykafka.options import ZooKeeperNodes
from pyspark_pykafka.progress import zookeeper_session
from pyspark_pykafka.progress.record import Owner, ProgressRecord
from pyspark_pykafka.progress.store import ClaimLostError
from pyspark_pykafka.progress.zookeeper_store import ZooKeeperStore

REFUSED = [NoAuthError(), RolledBackError(), RuntimeInconsistency()]


class Response(NamedTuple):
    """
    A response that has arrived: a result, or an error.
    """

    result: Any

    def get(self, timeout: float) -> Any:
        assert timeout > 0
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


class NodeStat(NamedTuple):
    """
    The status of a node.
    """

    version: int


class Transaction:
    """
    Accepts any step, and has the given results.
    """

    def __init__(self, results: list[Any]) -> None:
        self._results = results

    def check(self, *_: object, **__: object) -> None: ...

    set_data = create = delete = check

    def commit_async(self) -> Response:
        return Response(self._results)


class Client:
    """
    A client of a progress id that no process holds and that has no partitions.

    ``results`` are those of the first transaction, the second and so on; each further transaction
    has the results of the last one.
    """

    state = "CONNECTED"
    client_id = (1, b"")

    def __init__(self, results: list[list[Any]]) -> None:
        self._results = results
        self.transactions = 0

    def transaction(self) -> Transaction:
        self.transactions += 1
        return Transaction(self._results[min(self.transactions, len(self._results)) - 1])

    def get_async(self, path: str) -> Response:
        return Response(NoNodeError() if path.endswith("@owner") else (b"", NodeStat(3)))

    def get_children_async(self, _: str) -> Response:
        return Response([])

    def ensure_path_async(self, _: str) -> Response:
        return Response(None)

    connected = True

    def start_async(self) -> threading.Event:
        started = threading.Event()
        started.set()
        return started

    def stop(self) -> None: ...

    close = stop


class Clock:
    """
    Stands still, except for sleeps.
    """

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        assert seconds > 0, "a busy loop"
        self.seconds += seconds


def make_store(
    monkeypatch: pytest.MonkeyPatch, *results: list[Any], hosts: str = "zk:2181"
) -> ZooKeeperStore:
    """
    Return a store whose transactions have these results.
    """
    client, clock = Client([*results]), Clock()
    monkeypatch.setattr(zookeeper_session, "KazooClient", lambda *_, **__: client)
    nodes = ZooKeeperNodes(hosts, "/pykafka", "etl", 6_000, None, "open")
    return ZooKeeperStore(nodes, lambda _: {}, clock.now, clock.sleep)


def test_claim_without_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A claim of nodes that another user owns fails at once and names the option; it is not repeated.
    """
    store = make_store(monkeypatch, REFUSED)

    with pytest.raises(AuthorizationError, match="not allowed; zookeeperDigest must be a user"):
        store.claim(Owner("q", "run", 0), ["t"])


def test_write_without_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A write to nodes that another user owns is an authorization error. A lost claim would be claimed
    again.
    """
    store = make_store(monkeypatch, [], REFUSED)
    store.claim(Owner("q", "run", 0), ["t"])

    with pytest.raises(AuthorizationError, match="writing to /pykafka/etl"):
        store.write({TopicPartition("t", 0): ProgressRecord(1)})


def test_other_refusals_are_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Only a conflict with another process is worth another attempt.
    """
    store = make_store(monkeypatch, [InvalidACLError(), RuntimeInconsistency()])

    with pytest.raises(ProgressError, match="InvalidACLError") as caught:
        store.claim(Owner("q", "run", 0), ["t"])
    assert caught.value.condition == "ZOOKEEPER_REFUSED"


def test_a_dns_server_that_hangs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """
    A connection whose host names cannot be looked up fails at its deadline, and neither the failure
    nor a close waits for the DNS server.
    """
    over = threading.Event()

    def hanging(*_: object, **__: object) -> None:
        over.wait(60)
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", hanging)
    monkeypatch.setattr(zookeeper_session, "_RESPONSE_SECONDS", 0.3)
    monkeypatch.setattr(zookeeper_session, "_CLOSE_SECONDS", 0.3)
    nodes = ZooKeeperNodes("zk1:2181,zk2:2181", "/pykafka", "etl", 6_000, None, "open")
    session = zookeeper_session.ZooKeeperSession(nodes, "/pykafka/etl")
    started_at = time.monotonic()
    try:
        with (
            pytest.raises(BrokerUnavailableError, match="no response .*; are its servers up"),
            session.translating_errors("reading"),
        ):
            session.connect()
        session.client = KazooClient("zk1:2181")
        session.client.start_async()
        session.close()
        seconds = time.monotonic() - started_at
    finally:
        over.set()

    assert seconds < 20
    assert "zk1:2181,zk2:2181 could not be closed within 0 s" in caplog.text


def test_missing_chroot(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    If a node does not exist, the error names the chroot, which the connector does not create.
    """
    store = make_store(monkeypatch, [], hosts="zk:2181/kafka/prod")
    refuse = Response(NoNodeError())
    monkeypatch.setattr(Client, "ensure_path_async", lambda *_: refuse)

    with pytest.raises(ProgressError, match=r"a node does not exist; is there a node /kafka/prod"):
        store.claim(Owner("q", "run", 0), ["t"])


def test_claim_after_a_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A claim is repeated if another process was faster and has ended since then.
    """
    store = make_store(monkeypatch, [BadVersionError(), RuntimeInconsistency()], [])

    assert store.claim(Owner("q", "run", 0), ["t"]).owner.epoch == 1


def test_endless_conflicts(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    If other processes are always faster, the claim ends at its deadline.
    """
    store = make_store(monkeypatch, [RolledBackError(), NodeExistsError()])

    with pytest.raises(ProgressError, match="written by another process") as caught:
        store.claim(Owner("q", "run", 0), ["t"])
    assert caught.value.condition == "PROGRESS_OWNED"


def test_write_after_another_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A failed check of the token is a lost claim.
    """
    store = make_store(monkeypatch, [], [BadVersionError(), RuntimeInconsistency()])
    store.claim(Owner("q", "run", 0), ["t"])

    with pytest.raises(ClaimLostError, match="another process changed .*: BadVersionError"):
        store.write({TopicPartition("t", 0): ProgressRecord(1)})
