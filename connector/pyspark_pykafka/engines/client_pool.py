"""
Keeps clients open between the tasks of a worker, so that a task does not have to connect first.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

C = TypeVar("C")

_MAX_IDLE_SECONDS = 300.0
_MAX_IDLE_CLIENTS = 8


@dataclass(slots=True)
class _Idle(Generic[C]):
    key: Hashable
    client: C
    idle_since: float


def _always_usable(_client: object) -> bool:
    return True


class ClientPool(Generic[C]):
    """
    Lends each client to one borrower at a time, and keeps it unless the borrower's work failed.

    The key of a client holds its whole configuration, so changed credentials make a new client. A
    client whose borrower raised is closed, so that a retried task does not get it. A client is kept
    and lent again only while ``is_usable`` returns true, and closed otherwise.
    """

    def __init__(
        self,
        close: Callable[[C], None],
        is_usable: Callable[[C], bool] = _always_usable,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._close = close
        self._is_usable = is_usable
        self._now = now
        self._idle: list[_Idle[C]] = []
        self._inherited: list[_Idle[C]] = []
        self._lock = threading.Lock()
        # A forked child lacks librdkafka's threads, and shares its sockets with the parent, so it
        # neither uses nor closes inherited clients. It keeps references, so that none is finalised,
        # and makes a new lock, since a thread of the parent may hold the old one.
        # Invariant R4 (fork safety).
        os.register_at_fork(after_in_child=self._disown)

    @contextmanager
    def borrow(self, key: Hashable, create: Callable[[], C]) -> Iterator[C]:
        """
        Lend the client with this key; ``create`` makes one if none is idle.
        """
        client = self._take(key) or create()
        try:
            yield client
        except BaseException:
            self._close(client)
            raise
        if self._is_usable(client):
            self._keep(key, client)
        else:
            self._close(client)

    def _take(self, key: Hashable) -> C | None:
        self._close_expired(_MAX_IDLE_CLIENTS)
        while (idle := self._pop_idle(key)) is not None:
            if self._is_usable(idle.client):
                return idle.client
            self._close(idle.client)
        return None

    def _pop_idle(self, key: Hashable) -> _Idle[C] | None:
        with self._lock:
            index = next((i for i, idle in enumerate(self._idle) if idle.key == key), None)
            return None if index is None else self._idle.pop(index)

    def _keep(self, key: Hashable, client: C) -> None:
        with self._lock:
            self._idle.append(_Idle(key, client, self._now()))
        self._close_expired(_MAX_IDLE_CLIENTS)

    def _close_expired(self, max_idle: int) -> None:
        for idle in self._pop_expired(max_idle):
            self._close(idle.client)

    def _pop_expired(self, max_idle: int) -> list[_Idle[C]]:
        oldest = self._now() - _MAX_IDLE_SECONDS
        expired: list[_Idle[C]] = []
        with self._lock:
            while self._idle and (self._idle[0].idle_since < oldest or len(self._idle) > max_idle):
                expired.append(self._idle.pop(0))
        return expired

    def _disown(self) -> None:
        self._lock = threading.Lock()
        self._inherited += self._idle
        self._idle = []
