"""
A progress store in memory, with all the checks of a server.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark_pykafka.errors import BrokerUnavailableError, ProgressError
from pyspark_pykafka.progress.store import ClaimLostError, StoreClaim, next_owner

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark_pykafka.offsets import TopicPartition
    from pyspark_pykafka.progress.record import Owner, ProgressRecord
    from pyspark_pykafka.progress.store import Records


@dataclass
class Server:
    """
    The state that all stores of one id share; ``down`` makes every call fail as in an outage.
    """

    records: Records = field(default_factory=dict)
    holder: Owner | None = None
    alive: bool = False
    down: bool = False
    writes: int = 0

    def respond(self) -> None:
        if self.down:
            msg = "the store is down"
            raise BrokerUnavailableError(msg)


class MemoryStore:
    """
    One process's connection to the server.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._owner: Owner | None = None
        self.closed = 0

    def claim(self, owner: Owner, topics: Iterable[str]) -> StoreClaim:  # noqa: ARG002 (the contract's)
        server = self._server
        server.respond()
        if server.alive and server.holder is not None and server.holder.query != owner.query:
            msg = f"held by {server.holder}"
            raise ProgressError("PROGRESS_OWNED", msg)
        self._owner = next_owner(owner, server.holder)
        server.holder, server.alive = self._owner, True
        return StoreClaim(self._owner, dict(server.records))

    def write(self, records: Mapping[TopicPartition, ProgressRecord]) -> None:
        self.keep_alive()
        self._server.writes += 1
        self._server.records.update(records)

    def keep_alive(self) -> None:
        self._server.respond()
        if self._server.holder != self._owner:
            msg = "the store has another owner"
            raise ClaimLostError(msg)

    def read(self, topics: Iterable[str] | None = None) -> Records:
        self._server.respond()
        requested = None if topics is None else set(topics)
        records = self._server.records
        return {
            tp: record
            for tp, record in records.items()
            if requested is None or tp.topic in requested
        }

    def delete_records(self) -> None:
        if self._server.alive:
            msg = f"held by {self._server.holder}"
            raise ProgressError("PROGRESS_OWNED", msg)
        self._server.records.clear()

    def close(self) -> None:
        self.closed += 1
        if self._server.holder == self._owner:
            self._server.alive = False
