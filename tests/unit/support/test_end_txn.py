"""
The commit gate of the fault tests passes the configured number of commits, and holds the rest.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from tests.support.end_txn import END_TXN, EndTxn, EndTxnGate, Hold, read_end_txn

from pyspark_pykafka.engines.wire.protocol.transactions import end_txn_request
from pyspark_pykafka.engines.wire.records.record_batch import ProducerIdAndEpoch
from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.proxy import Proxy

SECONDS = 10.0
FETCH = 1
SIZE_BYTES = 4
CORRELATION = slice(4, 8)


def end_txn(name: str, version: int = 3, *, commit: bool = True) -> bytes:
    """
    Return a whole EndTxn request as a proxy receives it.
    """
    request = end_txn_request(version, name, ProducerIdAndEpoch(7, 1), commit=commit)
    return request.encode(1, "client")[SIZE_BYTES:]


class FakeProxy:
    """
    Has the hooks of a proxy, one thread per request, and a broker that responds on demand.
    """

    def __init__(self) -> None:
        self.on_request: Callable[[int, bytes], bytes | None]
        self.on_response: Callable[[int, bytes], bytes | None]
        self.forwarded: list[bytes] = []
        self.answered: list[bytes] = []
        self.dropped: list[bytes] = []

    def send(self, frame: bytes, key: int = END_TXN) -> None:
        self._start(self.forwarded, self.on_request, key, frame)

    def answer(self, request: bytes) -> None:
        self._start(self.answered, self.on_response, -1, request[CORRELATION] + b"answer")

    def _start(
        self,
        passed: list[bytes],
        hook: Callable[[int, bytes], bytes | None],
        key: int,
        frame: bytes,
    ) -> None:
        def run() -> None:
            sent = hook(key, frame)
            (self.dropped if sent is None else passed).append(sent or frame)

        threading.Thread(target=run).start()


@pytest.fixture
def proxy() -> FakeProxy:
    return FakeProxy()


@pytest.fixture
def gate(proxy: FakeProxy) -> EndTxnGate:
    proxies: list[Proxy] = [proxy]  # type: ignore[list-item]
    return EndTxnGate(proxies)


def await_held(hold: Hold, count: int) -> None:
    """
    Wait until this many requests are held.
    """
    wait_until(
        lambda: None if hold.held_commits == count else f"{hold.held_commits} are held", SECONDS
    )


def await_count(frames: list[bytes], count: int) -> None:
    """
    Wait until there are this many frames.
    """
    wait_until(lambda: None if len(frames) == count else f"{len(frames)} came", SECONDS)


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("length", [1, 126, 127, 128, 300])
def test_requests_are_parsed(version: int, length: int, *, commit: bool) -> None:
    """
    Transactional id and outcome are read in each version, with ids of any length.
    """
    name = "n" * length

    assert read_end_txn(end_txn(name, version, commit=commit)) == EndTxn(name, commit)


def test_the_first_commits_pass_and_the_others_wait(gate: EndTxnGate, proxy: FakeProxy) -> None:
    """
    One of three commits passes, even when it is retried; aborts and other requests pass as well.
    """
    hold = gate.hold("", lambda: True, lambda: 1)
    passing = [end_txn("a"), end_txn("a"), end_txn("b", commit=False)]
    for count, frame in enumerate(passing, start=1):
        proxy.send(frame)
        await_count(proxy.forwarded, count)
    for name in "bc":
        proxy.send(end_txn(name))
    await_held(hold, 2)
    proxy.send(b"", key=FETCH)
    await_count(proxy.forwarded, len(passing) + 1)

    assert hold.passed == ["a"]
    hold.forward()
    await_count(proxy.forwarded, len(passing) + 3)


def test_dropped_commits_are_never_sent(gate: EndTxnGate, proxy: FakeProxy) -> None:
    """
    If no commit may pass, all wait; dropped ones are lost, and later ones of another driver pass.
    """
    hold = gate.hold("", lambda: True, lambda: 0)
    proxy.send(end_txn("a"))
    await_held(hold, 1)
    gate.open()
    hold.drop()
    await_count(proxy.dropped, 1)
    proxy.send(end_txn("b"))
    await_count(proxy.forwarded, 1)

    assert proxy.forwarded == [end_txn("b")]


def test_the_last_response_is_held(gate: EndTxnGate, proxy: FakeProxy) -> None:
    """
    If all commits pass, all responses but the last arrive: the last one would show the driver that
    all commits are done. Each response has the correlation id of its own request, even if ids
    repeat on another connection.
    """
    hold = gate.hold("", lambda: True, lambda: 2)
    for count, name in enumerate("ab", start=1):
        proxy.send(end_txn(name))
        await_count(proxy.forwarded, count)
        proxy.answer(proxy.forwarded[-1])
        await_count(proxy.answered, 1)
    await_held(hold, 1)
    proxy.answer(end_txn("of another connection"))
    await_count(proxy.answered, 2)

    assert proxy.answered == [end_txn("a")[CORRELATION] + b"answer"] * 2
    gate.close()
    await_count(proxy.dropped, 1)


def test_each_prefix_is_held_by_itself(gate: EndTxnGate, proxy: FakeProxy) -> None:
    """
    A held commit of one query does not delay other queries.
    """
    hold = gate.hold("a-", lambda: True, lambda: 0)
    for name in ("a-1", "b-1", "ab-1"):
        proxy.send(end_txn(name))
    await_held(hold, 1)
    await_count(proxy.forwarded, 2)

    assert sorted(read_end_txn(request).transactional_id for request in proxy.forwarded) == [
        "ab-1",
        "b-1",
    ]
    gate.close()
    await_count(proxy.dropped, 1)


def test_nothing_is_held_before_it_is_due(gate: EndTxnGate, proxy: FakeProxy) -> None:
    """
    Commits pass until the condition holds; then the number that may pass is chosen once.
    """
    due = threading.Event()
    calls: list[int] = []

    def choose() -> int:
        calls.append(1)
        return 0

    hold = gate.hold("", due.is_set, choose)
    proxy.send(end_txn("a"))
    await_count(proxy.forwarded, 1)
    due.set()
    for name in "ab":
        proxy.send(end_txn(name))
    await_held(hold, 2)

    assert calls == [1]
    gate.close()
    await_count(proxy.dropped, 2)
