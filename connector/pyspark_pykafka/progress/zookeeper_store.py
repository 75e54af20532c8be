"""
Progress in ZooKeeper: a node for each partition, as Storm's Kafka spout had it, below the id's own.

The id's node names the owner, and its version is the fencing token: every write is one transaction
with a check of that version, so the server refuses whoever was replaced, however it slept.
"""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import (
    AuthFailedError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from pyspark_pykafka.errors import (
    AuthenticationError,
    AuthorizationError,
    BrokerUnavailableError,
    ProgressError,
)
from pyspark_pykafka.offsets import TopicPartition
from pyspark_pykafka.progress.record import Owner, from_node, to_node
from pyspark_pykafka.progress.store import Claim, ClaimLostError, chunks, next_owner
from pyspark_pykafka.retry import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from kazoo.client import TransactionRequest

    from pyspark_pykafka.options import ZooKeeperNodes
    from pyspark_pykafka.progress.record import Record
    from pyspark_pykafka.progress.store import Records

    Leaders = Callable[[Iterable[TopicPartition]], Mapping[TopicPartition, tuple[str, int]]]

#: The ephemeral node of the process that writes; no topic's name has an '@'.
HOLDER = "@owner"

_PARTITION = "partition_"
_ANSWER_SECONDS = 5.0
_LOOK_AGAIN_SECONDS = 0.5
_GRACE_SECONDS = 2.0
_LEADERS_SECONDS = 60.0

_ACLS = {
    "open": OPEN_ACL_UNSAFE,
    "creator": CREATOR_ALL_ACL,
    "readable": [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE],
}

# Lost connections, and answers that do not come: the server may or may not have done its part.
_PASSING = (KazooTimeoutError, ConnectionLoss, ConnectionClosedError, SessionExpiredError)

# Who takes records away, and leaves none.
_NOBODY = Owner("nobody", "none", 0)

# A transaction is one message, which is 1 MB at most by default (jute.maxbuffer).
_MOST_PER_TRANSACTION = 500


class ZooKeeperStore:
    """
    The store behind ``progressStore=zookeeper``; ``leaders`` tells where partitions are led.
    """

    def __init__(
        self,
        nodes: ZooKeeperNodes,
        leaders: Leaders,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._nodes = nodes
        self._base = f"{nodes.root}/{nodes.id}"
        self._leaders = _Leaders(leaders, now)
        self._client: KazooClient | None = None
        self._session: int | None = None
        self._token = 0
        self._made: set[str] = set()

    def claim(self, owner: Owner, topics: Iterable[str]) -> Claim:  # noqa: ARG002 (the contract's)
        """
        Put our name into the id's node, once no other query's process is alive there.
        """
        owner = self._enter(owner)
        with self._speaking("reading"):
            return Claim(owner, self._read(self._connected()))

    def write(self, records: Mapping[TopicPartition, Record]) -> None:
        """
        Set the partitions' nodes in transactions, each of which checks that the place is ours.
        """
        self.keep_alive()
        led = self._leaders.of(records)
        located = [(tp, replace(record, broker=led.get(tp))) for tp, record in records.items()]
        with self._speaking("writing to"):
            for portion in chunks(sorted(located), _MOST_PER_TRANSACTION):
                self._write(portion)

    def keep_alive(self) -> None:
        """
        See whether the session is still the one that claimed; kazoo keeps it alive by itself.
        """
        assert self._client is not None
        if self._client.state == KazooState.LOST or _session_of(self._client) != self._session:
            msg = f"the session with ZooKeeper at {self._nodes.hosts} is lost"
            raise ClaimLostError(msg)

    def read(self, topics: Iterable[str] | None = None) -> Records:
        """
        Return what the partitions' nodes hold.
        """
        with self._speaking("reading"):
            found = self._read(self._connected())
        wanted = None if topics is None else set(topics)
        return {tp: it for tp, it in found.items() if wanted is None or tp.topic in wanted}

    def delete_records(self) -> None:
        """
        Delete the nodes of all partitions, whatever is in them; the id's own stays.
        """
        self._enter(_NOBODY)
        with self._speaking("taking records from"):
            for portion in chunks(self._listed(self._connected()), _MOST_PER_TRANSACTION):
                deleting = self._begin()
                for tp in portion:
                    deleting.delete(self._path(tp))
                self._commit(deleting)
        self.close()

    def close(self) -> None:
        """
        End the session, and with it the node that says that somebody is here.
        """
        if self._client is not None:
            client, self._client = self._client, None
            client.stop()
            client.close()

    def _enter(self, owner: Owner) -> Owner:
        self.close()
        try:
            with self._speaking("taking"):
                client = self._connected()
                _answer(client.ensure_path_async(self._base))
                owner = self._take(client, owner)
        except BaseException:
            self.close()
            raise
        self._session = _session_of(client)
        return owner

    def _take(self, client: KazooClient, owner: Owner) -> Owner:
        patience = self._nodes.session_timeout_ms / 1000 + _GRACE_SECONDS
        deadline = Deadline.after(patience)
        while True:
            holder, holder_version = self._holder(client)
            if holder is None or holder.query == owner.query:
                data, stat = _answer(client.get_async(self._base))
                new = next_owner(owner, _owner(data))
                taking = client.transaction()
                taking.set_data(self._base, _text(new), version=stat.version)
                if holder is not None:
                    taking.delete(self._holder_path, version=holder_version)
                taking.create(self._holder_path, _text(new), ephemeral=True)
                if not _failures(_answer(taking.commit_async())):
                    self._token = stat.version + 1
                    return new
                # Another was quicker; now it is there to be seen.
            elif deadline.expired:
                msg = (
                    f"progress below {self._base} in ZooKeeper is written by {holder}; one query "
                    "at a time can use a zookeeperId: stop the other, or set another id"
                )
                raise ProgressError("PROGRESS_OWNED", msg)
            time.sleep(deadline.remaining(max_seconds=_LOOK_AGAIN_SECONDS))

    @property
    def _holder_path(self) -> str:
        return f"{self._base}/{HOLDER}"

    def _holder(self, client: KazooClient) -> tuple[Owner | None, int]:
        try:
            data, stat = _answer(client.get_async(self._holder_path))
        except NoNodeError:
            return None, -1
        return _owner(data), stat.version

    def _read(self, client: KazooClient) -> Records:
        tps = self._listed(client)
        # All are asked for before the first answer is awaited.
        asked = {tp: client.get_async(self._path(tp)) for tp in tps}
        self._made = {self._path(tp) for tp in asked}
        return {tp: from_node(tp, _answer(pending)[0]) for tp, pending in asked.items()}

    def _listed(self, client: KazooClient) -> list[TopicPartition]:
        try:
            names = _answer(client.get_children_async(self._base))
        except NoNodeError:
            return []
        listed = {
            topic: client.get_children_async(f"{self._base}/{topic}")
            for topic in names
            if topic != HOLDER
        }
        return sorted(
            TopicPartition(topic, int(name.removeprefix(_PARTITION)))
            for topic, pending in listed.items()
            for name in _answer(pending)
            if name.removeprefix(_PARTITION).isdigit()
        )

    def _write(self, portion: list[tuple[TopicPartition, Record]]) -> None:
        assert self._client is not None
        for topic in {tp.topic for tp, _ in portion if self._path(tp) not in self._made}:
            _answer(self._client.ensure_path_async(f"{self._base}/{topic}"))
        writing = self._begin()
        for tp, record in portion:
            path, data = self._path(tp), to_node(tp, record)
            if path in self._made:
                writing.set_data(path, data)
            else:
                writing.create(path, data)
        self._commit(writing)
        self._made |= {self._path(tp) for tp, _ in portion}

    def _begin(self) -> TransactionRequest:
        assert self._client is not None
        changes = self._client.transaction()
        changes.check(self._base, version=self._token)
        return changes

    def _commit(self, changes: TransactionRequest) -> None:
        failures = _failures(_answer(changes.commit_async()))
        if failures:
            msg = f"the nodes below {self._base} in ZooKeeper were changed by another: {failures}"
            raise ClaimLostError(msg)

    def _path(self, tp: TopicPartition) -> str:
        return f"{self._base}/{tp.topic}/{_PARTITION}{tp.partition}"

    def _connected(self) -> KazooClient:
        if self._client is None:
            digest = self._nodes.digest
            client = KazooClient(
                self._nodes.hosts,
                timeout=self._nodes.session_timeout_ms / 1000,
                auth_data=None if digest is None else [("digest", ":".join(digest))],
                default_acl=_ACLS[self._nodes.acl],
            )
            client.start(_ANSWER_SECONDS)
            self._client = client
        return self._client

    @contextmanager
    def _speaking(self, doing: str) -> Iterator[None]:
        """
        Turn kazoo's errors into the connector's.
        """
        where = f"{doing} {self._base} in ZooKeeper at {self._nodes.hosts}"
        try:
            yield
        except _PASSING as cause:
            msg = f"{where}: no answer ({cause or type(cause).__name__}); are its servers up?"
            raise BrokerUnavailableError(msg) from cause
        except NoAuthError as cause:
            msg = f"{where}: not allowed; zookeeperDigest must be a user whom the nodes' ACL names"
            raise AuthorizationError(msg) from cause
        except AuthFailedError as cause:
            msg = f"{where}: refused who zookeeperDigest says we are"
            raise AuthenticationError(msg) from cause
        except KazooException as cause:
            msg = f"{where}: {type(cause).__name__} {cause}"
            raise ProgressError("ZOOKEEPER_REFUSED", msg) from cause


class _Leaders:
    """
    Remembers for a while where partitions are led, which is in the records for people only.
    """

    def __init__(self, ask: Leaders, now: Callable[[], float]) -> None:
        self._ask = ask
        self._now = now
        self._known: dict[TopicPartition, tuple[str, int]] = {}
        self._until = Deadline.after(0.0, now)

    def of(self, tps: Iterable[TopicPartition]) -> Mapping[TopicPartition, tuple[str, int]]:
        wanted = set(tps)
        if self._until.expired or not wanted <= self._known.keys():
            self._known.update(self._ask(wanted))
            self._until = Deadline.after(_LEADERS_SECONDS, self._now)
        return self._known


def _session_of(client: KazooClient) -> int | None:
    # None between the end of one session and the start of the next.
    return client.client_id[0] if client.client_id else None


def _answer(pending: Any) -> Any:
    return pending.get(timeout=_ANSWER_SECONDS)


def _failures(results: list[Any]) -> str:
    """
    Return what was wrong with a transaction, without the steps that were fine by themselves.
    """
    wrong = [it for it in results if isinstance(it, Exception)]
    causes = [it for it in wrong if not isinstance(it, RolledBackError | RuntimeInconsistency)]
    return ", ".join(sorted({type(it).__name__ for it in causes or wrong}))


def _text(owner: Owner) -> bytes:
    fields = {"query": owner.query, "run": owner.run, "epoch": owner.epoch}
    return json.dumps(fields, separators=(",", ":")).encode()


def _owner(data: bytes) -> Owner | None:
    try:
        given = json.loads(data)
        return Owner(str(given["query"]), str(given["run"]), int(given["epoch"]))
    except (ValueError, KeyError, TypeError):
        # A node made by its children's being made, or by someone else for its own purpose.
        return None
