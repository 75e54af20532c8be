"""
Progress in ZooKeeper: one node per partition below the node of ``zookeeperId``, as in Storm's Kafka
spout.

The id's node names the owner, and its version is the fencing token: every write is a transaction
that checks this version, so the server rejects a replaced process however long it was paused.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from kazoo.exceptions import NoNodeError

from pyspark_pykafka.errors import ProgressError
from pyspark_pykafka.offsets import TopicPartition
from pyspark_pykafka.progress.leader_cache import LeaderCache
from pyspark_pykafka.progress.record import (
    Owner,
    from_znode,
    owner_from_znode,
    owner_to_znode,
    to_znode,
)
from pyspark_pykafka.progress.store import ClaimLostError, StoreClaim, chunks, next_owner
from pyspark_pykafka.progress.zookeeper_session import (
    ZooKeeperSession,
    transaction_conflicts,
    wait_for_response,
)
from pyspark_pykafka.retry import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kazoo.client import KazooClient, TransactionRequest

    from pyspark_pykafka.options import ZooKeeperNodes
    from pyspark_pykafka.progress.leader_cache import Leaders
    from pyspark_pykafka.progress.record import ProgressRecord
    from pyspark_pykafka.progress.store import Records

#: The ephemeral node of the writing process; no topic name contains '@'.
HOLDER = "@owner"

_PARTITION = "partition_"
_RECHECK_SECONDS = 0.5
_GRACE_SECONDS = 2.0

# The owner while records are deleted.
_DELETER = Owner("nobody", "none", 0)

# A transaction is one message, by default at most 1 MB (jute.maxbuffer).
_MAX_TRANSACTION_SIZE = 500


class ZooKeeperStore:
    """
    The store of ``progressStore=zookeeper``.

    ``leaders`` returns the leader (host, port) of each given partition.
    """

    def __init__(
        self,
        nodes: ZooKeeperNodes,
        leaders: Leaders,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._nodes = nodes
        self._base = f"{nodes.root}/{nodes.id}"
        self._leaders = LeaderCache(leaders, now)
        self._now = now
        self._sleep = sleep
        self._session = ZooKeeperSession(nodes, self._base)
        self._token = 0
        self._existing: set[str] = set()

    def __repr__(self) -> str:
        connected = self._session.client is not None
        return f"ZooKeeperStore({self._nodes.hosts!r}, {self._base!r}, connected={connected})"

    def claim(self, owner: Owner, topics: Iterable[str]) -> StoreClaim:  # noqa: ARG002 (the protocol's)
        """
        Write the owner into the id's node, once no live process of another query holds it.
        """
        owner = self._take_ownership(owner)
        with self._session.translating_errors("reading"):
            return StoreClaim(owner, self._read(self._session.connect()))

    def write(self, records: Mapping[TopicPartition, ProgressRecord]) -> None:
        """
        Set the partitions' nodes, in transactions that check that the claim is still valid.
        """
        self.keep_alive()
        leaders = self._leaders.get(records)
        located = [(tp, replace(record, broker=leaders.get(tp))) for tp, record in records.items()]
        with self._session.translating_errors("writing to"):
            for chunk in chunks(sorted(located), _MAX_TRANSACTION_SIZE):
                self._write(chunk)

    def keep_alive(self) -> None:
        """
        Check that the session is still that of the claim; kazoo keeps it alive by itself.
        """
        self._session.check_claim()

    def read(self, topics: Iterable[str] | None = None) -> Records:
        """
        Return the records of the partitions' nodes.
        """
        with self._session.translating_errors("reading"):
            records = self._read(self._session.connect())
        requested = None if topics is None else set(topics)
        return {
            tp: record
            for tp, record in records.items()
            if requested is None or tp.topic in requested
        }

    def delete_records(self) -> None:
        """
        Delete the nodes of all partitions, whatever they contain; the id's own node stays.
        """
        self._take_ownership(_DELETER)
        with self._session.translating_errors("deleting records from"):
            for chunk in chunks(
                self._recorded_partitions(self._session.connect()), _MAX_TRANSACTION_SIZE
            ):
                transaction = self._begin()
                for tp in chunk:
                    transaction.delete(self._path(tp))
                self._commit(transaction)
        self.close()

    def close(self) -> None:
        """
        End the session, which deletes the ephemeral node of the owner.
        """
        self._session.close()

    def _take_ownership(self, owner: Owner) -> Owner:
        self.close()
        try:
            with self._session.translating_errors("claiming"):
                client = self._session.connect()
                wait_for_response(client.ensure_path_async(self._base))
                owner = self._replace_owner(client, owner)
        except BaseException:
            self.close()
            raise
        self._session.start_claim()
        return owner

    def _replace_owner(self, client: KazooClient, owner: Owner) -> Owner:
        seconds = self._nodes.session_timeout_ms / 1000 + _GRACE_SECONDS
        deadline = Deadline.after(seconds, self._now)
        while True:
            holder, holder_version = self._holder(client)
            if holder is None or holder.query == owner.query:
                data, stat = wait_for_response(client.get_async(self._base))
                new = next_owner(owner, owner_from_znode(data))
                transaction = client.transaction()
                transaction.set_data(self._base, owner_to_znode(new), version=stat.version)
                if holder is not None:
                    transaction.delete(self._holder_path, version=holder_version)
                transaction.create(self._holder_path, owner_to_znode(new), ephemeral=True)
                if not transaction_conflicts(wait_for_response(transaction.commit_async())):
                    self._token = stat.version + 1
                    return new
                # Another process was faster; the next iteration sees its node.
            if deadline.expired:
                msg = (
                    f"progress below {self._base} in ZooKeeper is written by "
                    f"{holder or 'another process'}; only one source of one query at a time can "
                    "use a zookeeperId: stop the other query, or give each source an id of its own"
                )
                raise ProgressError("PROGRESS_OWNED", msg)
            self._sleep(deadline.remaining(max_seconds=_RECHECK_SECONDS))

    @property
    def _holder_path(self) -> str:
        return f"{self._base}/{HOLDER}"

    def _holder(self, client: KazooClient) -> tuple[Owner | None, int]:
        try:
            data, stat = wait_for_response(client.get_async(self._holder_path))
        except NoNodeError:
            return None, -1
        return owner_from_znode(data), stat.version

    def _read(self, client: KazooClient) -> Records:
        tps = self._recorded_partitions(client)
        # All requests are sent before the first response is awaited.
        pending_nodes = {tp: client.get_async(self._path(tp)) for tp in tps}
        self._existing = {self._path(tp) for tp in pending_nodes}
        return {
            tp: from_znode(tp, wait_for_response(pending)[0])
            for tp, pending in pending_nodes.items()
        }

    def _recorded_partitions(self, client: KazooClient) -> list[TopicPartition]:
        try:
            names = wait_for_response(client.get_children_async(self._base))
        except NoNodeError:
            return []
        partition_names = {
            topic: client.get_children_async(f"{self._base}/{topic}")
            for topic in names
            if topic != HOLDER
        }
        return sorted(
            TopicPartition(topic, int(name.removeprefix(_PARTITION)))
            for topic, pending in partition_names.items()
            for name in wait_for_response(pending)
            if name.removeprefix(_PARTITION).isdigit()
        )

    def _write(self, chunk: list[tuple[TopicPartition, ProgressRecord]]) -> None:
        assert self._session.client is not None
        for topic in {tp.topic for tp, _ in chunk if self._path(tp) not in self._existing}:
            wait_for_response(self._session.client.ensure_path_async(f"{self._base}/{topic}"))
        transaction = self._begin()
        for tp, record in chunk:
            path, data = self._path(tp), to_znode(tp, record)
            if path in self._existing:
                transaction.set_data(path, data)
            else:
                transaction.create(path, data)
        self._commit(transaction)
        self._existing |= {self._path(tp) for tp, _ in chunk}

    def _begin(self) -> TransactionRequest:
        assert self._session.client is not None
        transaction = self._session.client.transaction()
        transaction.check(self._base, version=self._token)
        return transaction

    def _commit(self, transaction: TransactionRequest) -> None:
        conflicts = transaction_conflicts(wait_for_response(transaction.commit_async()))
        if conflicts:
            msg = f"another process changed the nodes below {self._base} in ZooKeeper: {conflicts}"
            raise ClaimLostError(msg)

    def _path(self, tp: TopicPartition) -> str:
        return f"{self._base}/{tp.topic}/{_PARTITION}{tp.partition}"
