"""
Holds commits in front of the coordinator, so that a driver can die between any two of them.
"""

from __future__ import annotations

import struct
import threading
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.support.proxy import Proxy

END_TXN = 26
_FIRST_FLEXIBLE = 3
_HEADER = struct.Struct(">hhih")
_LENGTH = struct.Struct(">h")
_CORRELATION = struct.Struct(">i")
# Above the correlation ids that any client reaches in a test.
_FIRST_TAG = 1 << 30
# The producer id and epoch.
_PRODUCER_BYTES = 10


class EndTxn(NamedTuple):
    """
    The transaction of an EndTxn request, and whether to commit it.
    """

    transactional_id: str
    commit: bool


def read_end_txn(frame: bytes) -> EndTxn:
    """
    Parse an EndTxn request, as ``EndTxnRequest.json`` of Kafka defines it.
    """
    _, version, _, client = _HEADER.unpack_from(frame)
    position = _HEADER.size + max(client, 0)
    if version < _FIRST_FLEXIBLE:
        (length,) = _LENGTH.unpack_from(frame, position)
        position += _LENGTH.size
    else:
        # After the empty tagged fields of the header; a compact string's length is stored plus 1.
        length, position = _varint(frame, position + 1)
        length -= 1
    name = frame[position : position + length].decode()
    return EndTxn(name, commit=bool(frame[position + length + _PRODUCER_BYTES]))


def _varint(frame: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = frame[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


@dataclass(eq=False)
class Hold:
    """
    From the first commit that finds ``is_due()`` true, passes ``choose()`` commits and holds the
    rest.

    The response to the last commit that passes is held as well, so that the driver does not learn
    that all commits are done. ``passed`` holds the transactional ids of the commits that passed,
    and ``held_commits`` counts the held frames.
    """

    is_due: Callable[[], bool]
    choose: Callable[[], int]
    allowed: int | None = None
    passed: list[str] = field(default_factory=list)
    held_commits: int = 0
    _change: threading.Condition = field(default_factory=threading.Condition)
    _forwards: bool | None = None

    def forward(self) -> None:
        """
        Forward the held frames, and all further ones.
        """
        self._finish(forwards=True)

    def drop(self) -> None:
        """
        Drop the held frames, as a host that loses power does.
        """
        self._finish(forwards=False)

    def commit(self, name: str) -> bool:
        """
        Wait until a commit may be forwarded; return False if it is dropped.
        """
        with self._change:
            return not self._is_active() or self._passes(name) or self._wait()

    def respond(self) -> bool:
        """
        Wait until a response may be forwarded; return False if it is dropped.
        """
        with self._change:
            is_allowed = self.allowed is None or len(self.passed) < self.allowed
            return is_allowed or self._wait()

    def _is_active(self) -> bool:
        if self.allowed is None and self._forwards is None and self.is_due():
            self.allowed = self.choose()
        return self.allowed is not None

    def _passes(self, name: str) -> bool:
        if name not in self.passed and len(self.passed) < (self.allowed or 0):
            self.passed.append(name)
        return name in self.passed

    def _wait(self) -> bool:
        self.held_commits += 1
        self._change.wait_for(lambda: self._forwards is not None)
        self.held_commits -= 1
        return bool(self._forwards)

    def _finish(self, *, forwards: bool) -> None:
        with self._change:
            self._forwards = forwards
            self._change.notify_all()


class EndTxnGate:
    """
    Hooks into the proxies of a cluster, and holds commits by transactional-id prefix.

    A commit gets a unique correlation id, by which its response is recognised.
    """

    def __init__(self, proxies: Iterable[Proxy]) -> None:
        self._holds: dict[str, Hold] = {}
        self._all_holds: list[Hold] = []
        self._tags = count(_FIRST_TAG)
        self._sent: dict[int, tuple[int, Hold]] = {}
        for proxy in proxies:
            proxy.on_request = self._request
            proxy.on_response = self._response

    def hold(self, prefix: str, is_due: Callable[[], bool], choose: Callable[[], int]) -> Hold:
        """
        Return a hold for the prefix's commits from now on, replacing an earlier hold.
        """
        self._holds[prefix] = hold = Hold(is_due, choose)
        self._all_holds.append(hold)
        return hold

    def open(self) -> None:
        """
        Let further commits pass; held frames wait for :meth:`Hold.forward` or :meth:`Hold.drop`.
        """
        self._holds.clear()

    def close(self) -> None:
        """
        Let further commits pass, and drop the held frames.
        """
        self.open()
        for hold in self._all_holds:
            hold.drop()

    def _request(self, key: int, frame: bytes) -> bytes | None:
        if key != END_TXN:
            return frame
        name, commit = read_end_txn(frame)
        matching = (hold for prefix, hold in self._holds.items() if name.startswith(prefix))
        hold = next(matching, None)
        if hold is None or not commit:
            return frame
        return self._tag(frame, hold) if hold.commit(name) else None

    def _tag(self, frame: bytes, hold: Hold) -> bytes:
        tag = next(self._tags)
        key, version, correlation, client = _HEADER.unpack_from(frame)
        self._sent[tag] = (correlation, hold)
        return _HEADER.pack(key, version, tag, client) + frame[_HEADER.size :]

    def _response(self, _: int, frame: bytes) -> bytes | None:
        (tag,) = _CORRELATION.unpack_from(frame)
        if tag not in self._sent:
            return frame
        correlation, hold = self._sent.pop(tag)
        response = _CORRELATION.pack(correlation) + frame[_CORRELATION.size :]
        return response if hold.respond() else None
