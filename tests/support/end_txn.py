"""
Holds commits on their way to the coordinator, so that a driver can die between any two of them.
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
# No client has sent so many requests on a connection.
_FIRST_NUMBER = 1 << 30
# Producer id and epoch.
_IDENTITY_BYTES = 10


class EndTxn(NamedTuple):
    """
    What a request to end a transaction asks for.
    """

    transactional_id: str
    commit: bool


def read_end_txn(frame: bytes) -> EndTxn:
    """
    Return what an EndTxn request says, after Kafka's ``EndTxnRequest.json``.
    """
    _, version, _, client = _HEADER.unpack_from(frame)
    at = _HEADER.size + max(client, 0)
    if version < _FIRST_FLEXIBLE:
        (length,) = _LENGTH.unpack_from(frame, at)
        at += _LENGTH.size
    else:
        # After the header's empty tags; a compact string is one longer than it says.
        length, at = _varint(frame, at + 1)
        length -= 1
    name = frame[at : at + length].decode()
    return EndTxn(name, commit=bool(frame[at + length + _IDENTITY_BYTES]))


def _varint(frame: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = frame[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


@dataclass(eq=False)
class Hold:
    """
    Lets ``choose()`` transactions be committed, from the first commit on for which it ``is_due``.

    The answer to the last of them is held, too, so that the driver does not hear that all is done.
    ``passed`` are the transactional ids that were let through, ``held`` counts what waits.
    """

    is_due: Callable[[], bool]
    choose: Callable[[], int]
    allowed: int | None = None
    passed: list[str] = field(default_factory=list)
    held: int = 0
    _change: threading.Condition = field(default_factory=threading.Condition)
    _forwards: bool | None = None

    def forward(self) -> None:
        """
        Send on what is held, and hold nothing any more.
        """
        self._finish(forwards=True)

    def drop(self) -> None:
        """
        Never send on what is held: a host without power takes it with it.
        """
        self._finish(forwards=False)

    def commit(self, name: str) -> bool:
        """
        Wait until a transaction may be committed; return whether it is to be.
        """
        with self._change:
            return not self._begun() or self._passes(name) or self._wait()

    def answer(self) -> bool:
        """
        Wait until an answer may be sent; return whether it is to be.
        """
        with self._change:
            more = self.allowed is None or len(self.passed) < self.allowed
            return more or self._wait()

    def _begun(self) -> bool:
        if self.allowed is None and self._forwards is None and self.is_due():
            self.allowed = self.choose()
        return self.allowed is not None

    def _passes(self, name: str) -> bool:
        if name not in self.passed and len(self.passed) < (self.allowed or 0):
            self.passed.append(name)
        return name in self.passed

    def _wait(self) -> bool:
        self.held += 1
        self._change.wait_for(lambda: self._forwards is not None)
        self.held -= 1
        return bool(self._forwards)

    def _finish(self, *, forwards: bool) -> None:
        with self._change:
            self._forwards = forwards
            self._change.notify_all()


class EndTxnGate:
    """
    Stands in the proxies of a cluster, and holds commits by the prefix of their transactional ids.

    A commit gets a correlation id that no other request has, by which its answer is known.
    """

    def __init__(self, proxies: Iterable[Proxy]) -> None:
        self._holds: dict[str, Hold] = {}
        self._made: list[Hold] = []
        self._numbers = count(_FIRST_NUMBER)
        self._sent: dict[int, tuple[int, Hold]] = {}
        for proxy in proxies:
            proxy.on_request = self._request
            proxy.on_response = self._response

    def hold(self, prefix: str, is_due: Callable[[], bool], choose: Callable[[], int]) -> Hold:
        """
        Return a hold that takes in the prefix's requests from now on, in place of another one.
        """
        self._holds[prefix] = hold = Hold(is_due, choose)
        self._made.append(hold)
        return hold

    def open(self) -> None:
        """
        Hold nothing new; what is held stays so until its own hold says what becomes of it.
        """
        self._holds.clear()

    def close(self) -> None:
        """
        Hold nothing new, and send nothing on that is held.
        """
        self.open()
        for hold in self._made:
            hold.drop()

    def _request(self, key: int, frame: bytes) -> bytes | None:
        if key != END_TXN:
            return frame
        name, commit = read_end_txn(frame)
        found = (hold for prefix, hold in self._holds.items() if name.startswith(prefix))
        hold = next(found, None)
        if hold is None or not commit:
            return frame
        return self._tagged(frame, hold) if hold.commit(name) else None

    def _tagged(self, frame: bytes, hold: Hold) -> bytes:
        number = next(self._numbers)
        key, version, correlation, client = _HEADER.unpack_from(frame)
        self._sent[number] = (correlation, hold)
        return _HEADER.pack(key, version, number, client) + frame[_HEADER.size :]

    def _response(self, _: int, frame: bytes) -> bytes | None:
        (number,) = _CORRELATION.unpack_from(frame)
        if number not in self._sent:
            return frame
        correlation, hold = self._sent.pop(number)
        answer = _CORRELATION.pack(correlation) + frame[_CORRELATION.size :]
        return answer if hold.answer() else None
