"""
Holds commits on their way to the coordinator, so that a driver can die between any two of them.
"""

from __future__ import annotations

import struct
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.support.proxy import Proxy

END_TXN = 26
_FIRST_FLEXIBLE = 3
_HEADER = struct.Struct(">hhih")
_LENGTH = struct.Struct(">h")
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
    ``passed`` are the transactional ids that were let through, ``held`` counts the requests that
    wait.
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

    def request(self, frame: bytes) -> bytes | None:
        """
        Return the frame when it may pass, None if it never may.
        """
        ended = read_end_txn(frame)
        with self._change:
            if not ended.commit or not self._begun() or self._passes(ended.transactional_id):
                return frame
            return self._wait(frame)

    def response(self, frame: bytes) -> bytes | None:
        """
        Return the frame when it may pass, None if it never may.
        """
        with self._change:
            if self.allowed is None or len(self.passed) < self.allowed:
                return frame
            return self._wait(frame)

    def _begun(self) -> bool:
        if self.allowed is None and self._forwards is None and self.is_due():
            self.allowed = self.choose()
        return self.allowed is not None

    def _passes(self, name: str) -> bool:
        if name not in self.passed and len(self.passed) < (self.allowed or 0):
            self.passed.append(name)
        return name in self.passed

    def _wait(self, frame: bytes) -> bytes | None:
        self.held += 1
        self._change.wait_for(lambda: self._forwards is not None)
        self.held -= 1
        return frame if self._forwards else None

    def _finish(self, *, forwards: bool) -> None:
        with self._change:
            self._forwards = forwards
            self._change.notify_all()


class EndTxnGate:
    """
    Stands in the proxies of a cluster; at most one hold takes in new requests at a time.
    """

    def __init__(self, proxies: Iterable[Proxy]) -> None:
        self._hold: Hold | None = None
        self._made: list[Hold] = []
        for proxy in proxies:
            proxy.on_request = self._request
            proxy.on_response = self._response

    def hold(self, is_due: Callable[[], bool], choose: Callable[[], int]) -> Hold:
        """
        Return a hold that takes in requests from now on.
        """
        self._hold = Hold(is_due, choose)
        self._made.append(self._hold)
        return self._hold

    def open(self) -> None:
        """
        Hold nothing new; what is held stays so until its own hold says what becomes of it.
        """
        self._hold = None

    def close(self) -> None:
        """
        Hold nothing new, and send nothing on that is held.
        """
        self.open()
        for hold in self._made:
            hold.drop()

    def _request(self, key: int, frame: bytes) -> bytes | None:
        hold = self._hold
        return frame if key != END_TXN or hold is None else hold.request(frame)

    def _response(self, key: int, frame: bytes) -> bytes | None:
        hold = self._hold
        return frame if key != END_TXN or hold is None else hold.response(frame)
