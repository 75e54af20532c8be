"""
Clients kept open between the tasks of one worker, so that a task does not start by connecting.
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

_IDLE_SECONDS = 300.0
_IDLE_CLIENTS = 8


@dataclass(slots=True)
class _Idle(Generic[C]):
    key: Hashable
    client: C
    since: float


def _always(_client: object) -> bool:
    return True


class ClientPool(Generic[C]):
    """
    Lends each client to one borrower at a time and keeps it afterwards if all went well.

    Clients are told apart by a key that holds all that they were made from, so changed credentials
    mean a new client. A client that was lent to work that failed is closed: a retried task never
    meets it again. ``usable`` is asked of each client that waited, and one that says no is closed.
    """

    def __init__(
        self,
        close: Callable[[C], None],
        usable: Callable[[C], bool] = _always,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._close = close
        self._usable = usable
        self._now = now
        self._idle: list[_Idle[C]] = []
        self._inherited: list[_Idle[C]] = []
        self._turn = threading.Lock()
        # In a forked child librdkafka's threads are missing, and a socket is still its parent's:
        # the child neither uses nor closes what it inherited. It keeps the references so that
        # nothing finalises them, and makes a lock that no thread of the parent's holds.
        # Invariant R4 (fork safety).
        os.register_at_fork(after_in_child=self._disown)

    @contextmanager
    def borrow(self, key: Hashable, create: Callable[[], C]) -> Iterator[C]:
        """
        Lend the client of this key; ``create`` makes one where none is free.
        """
        client = self._take(key) or create()
        try:
            yield client
        except BaseException:
            self._close(client)
            raise
        self._keep(key, client)

    def _take(self, key: Hashable) -> C | None:
        self._close_old(_IDLE_CLIENTS)
        while (idle := self._found(key)) is not None:
            if self._usable(idle.client):
                return idle.client
            self._close(idle.client)
        return None

    def _found(self, key: Hashable) -> _Idle[C] | None:
        with self._turn:
            at = next((i for i, idle in enumerate(self._idle) if idle.key == key), None)
            return None if at is None else self._idle.pop(at)

    def _keep(self, key: Hashable, client: C) -> None:
        with self._turn:
            self._idle.append(_Idle(key, client, self._now()))
        self._close_old(_IDLE_CLIENTS)

    def _close_old(self, keep: int) -> None:
        for idle in self._old(keep):
            self._close(idle.client)

    def _old(self, keep: int) -> list[_Idle[C]]:
        horizon = self._now() - _IDLE_SECONDS
        old: list[_Idle[C]] = []
        with self._turn:
            while self._idle and (self._idle[0].since < horizon or len(self._idle) > keep):
                old.append(self._idle.pop(0))
        return old

    def _disown(self) -> None:
        self._turn = threading.Lock()
        self._inherited += self._idle
        self._idle = []
