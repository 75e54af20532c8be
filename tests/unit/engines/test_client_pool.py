"""
Clients are kept between tasks: lent to one borrower at a time, and never after a failure.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import pytest

from pyspark_pykafka.engines.client_pool import ClientPool


@dataclass
class Client:
    """
    A client that records whether it was closed, and can become unusable.
    """

    closed: bool = False
    stale: bool = False

    def close(self) -> None:
        self.closed = True

    def usable(self) -> bool:
        return not self.stale


@dataclass
class Time:
    """
    A clock set by hand, and a pool with that clock.
    """

    seconds: float = 0.0
    pool: ClientPool[Client] = field(init=False)

    def __post_init__(self) -> None:
        self.pool = ClientPool(Client.close, Client.usable, lambda: self.seconds)


def borrow(pool: ClientPool[Client], **config: Any) -> Client:
    """
    Borrow a client and give it back.
    """
    with pool.borrow(frozenset(config.items()), Client) as client:
        return client


def test_client_is_reused() -> None:
    """
    The next task with the same settings gets the client of the last task.
    """
    pool = Time().pool

    assert borrow(pool, a=1) is borrow(pool, a=1)


def test_other_settings_get_another_client() -> None:
    """
    A task with changed credentials never gets a client that was made with the old ones.
    """
    pool = Time().pool

    assert borrow(pool, password="old") is not borrow(pool, password="new")  # noqa: S106


def test_client_has_one_borrower_at_a_time() -> None:
    """
    Two concurrent readers have a client each.
    """
    pool = Time().pool

    with pool.borrow(0, Client) as first, pool.borrow(0, Client) as second:
        assert first is not second


def test_failed_task_closes_its_client() -> None:
    """
    A retried task never gets the client of the failed attempt.
    """
    pool = Time().pool
    first = borrow(pool)
    with pytest.raises(ZeroDivisionError, match="zero"):
        fail_with(pool)

    assert first.closed
    assert borrow(pool) is not first


def fail_with(pool: ClientPool[Client]) -> None:
    """
    Borrow a client for work that fails.
    """
    with pool.borrow(frozenset(), Client):
        1 / 0  # noqa: B018


def test_idle_clients_are_closed() -> None:
    """
    A client that is idle for five minutes is closed when the pool is used next.
    """
    clock = Time()
    old = borrow(clock.pool, a=1)
    clock.seconds = 301
    borrow(clock.pool, a=2)

    assert old.closed


def test_idle_clients_are_bounded() -> None:
    """
    Eight idle clients stay open, whatever the number of settings.
    """
    pool = Time().pool
    clients = [borrow(pool, n=n) for n in range(20)]

    assert sum(not client.closed for client in clients) == 8


def test_stale_clients_are_closed() -> None:
    """
    A client whose broker went away while it was idle is never lent.
    """
    pool = Time().pool
    first = borrow(pool)
    first.stale = True

    assert borrow(pool) is not first
    assert first.closed


def test_a_client_that_became_stale_is_closed_when_it_is_given_back() -> None:
    """
    Its connections stay open no longer than the task that found it stale.
    """
    with Time().pool.borrow("settings", Client) as client:
        client.stale = True

    assert client.closed


def test_threads_never_share_a_client() -> None:
    """
    No client is lent to two threads at a time, whatever the number of threads.
    """
    pool = Time().pool
    in_use: set[int] = set()
    shared: list[Client] = []

    def work() -> None:
        for _ in range(200):
            with pool.borrow("same", Client) as client:
                shared.extend([client] if id(client) in in_use else [])
                in_use.add(id(client))
                time.sleep(0)
                in_use.remove(id(client))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)

    assert not shared
    assert not in_use


def test_forked_child_has_no_clients() -> None:
    """
    A child process neither uses nor closes the clients of its parent.
    """
    pool = Time().pool
    parents = borrow(pool)
    child = os.fork()
    if child == 0:
        os._exit(0 if borrow(pool) is not parents and not parents.closed else 1)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert borrow(pool) is parents
