"""
Clients kept open between the tasks of one worker, so that a task does not start by connecting.
"""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

C = TypeVar("C")

_IDLE_SECONDS = 300.0
_IDLE_CLIENTS = 8


@dataclass(slots=True)
class _Idle(Generic[C]):
    key: frozenset[tuple[str, Any]]
    client: C
    since: float


class ClientPool(Generic[C]):
    """
    Lends each client to one borrower at a time and keeps it afterwards if all went well.

    Clients are told apart by their whole configuration, so changed credentials mean a new client.
    A client that was lent to work that failed is closed: a retried task never meets it again.
    """

    def __init__(
        self,
        create: Callable[[Mapping[str, Any]], C],
        close: Callable[[C], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._create = create
        self._close = close
        self._now = now
        self._idle: list[_Idle[C]] = []
        self._inherited: list[_Idle[C]] = []
        # A handle of librdkafka's must be neither used nor destroyed in a forked child: its
        # threads are not there. The child keeps the references so that nothing finalises them.
        os.register_at_fork(after_in_child=self._disown)

    @contextmanager
    def borrow(self, config: Mapping[str, Any]) -> Iterator[C]:
        """
        Lend a client of this configuration.
        """
        key = frozenset(config.items())
        client = self._take(key) or self._create(config)
        try:
            yield client
        except BaseException:
            self._close(client)
            raise
        self._keep(key, client)

    def _take(self, key: frozenset[tuple[str, Any]]) -> C | None:
        self._close_old(_IDLE_CLIENTS)
        for index, idle in enumerate(self._idle):
            if idle.key == key:
                return self._idle.pop(index).client
        return None

    def _keep(self, key: frozenset[tuple[str, Any]], client: C) -> None:
        self._close_old(_IDLE_CLIENTS - 1)
        self._idle.append(_Idle(key, client, self._now()))

    def _close_old(self, keep: int) -> None:
        horizon = self._now() - _IDLE_SECONDS
        while self._idle and (self._idle[0].since < horizon or len(self._idle) > keep):
            self._close(self._idle.pop(0).client)

    def _disown(self) -> None:
        self._inherited += self._idle
        self._idle = []
