"""
Serves a simulated cluster on loopback ports, for real clients.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from tests.simulation.kafka.cluster import SimulatedCluster
from tests.simulation.kafka.settings import ClusterSettings
from tests.simulation.kafka.wire import expects_reply
from tests.support.listening import listen

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

T = TypeVar("T")
_SECONDS = 10.0


class _RealTime:
    """
    The schedule of a cluster that runs in an event loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def now(self) -> float:
        return time.time()

    def call_later(self, seconds: float, action: Callable[[], None]) -> None:
        self._loop.call_later(seconds, action)


class ServedCluster:
    """
    A simulated cluster with an event loop in a thread of its own, during a ``with`` block.
    """

    def __init__(self, brokers: int = 1, settings: ClusterSettings | None = None) -> None:
        self._listeners = {n: listen() for n in range(1, brokers + 1)}
        addresses = {n: listener.getsockname() for n, listener in self._listeners.items()}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._connections: set[asyncio.Task[None]] = set()
        self._cluster = SimulatedCluster(
            brokers,
            _RealTime(self._loop),
            random.Random(1),
            replace(settings or ClusterSettings(), addresses=addresses),
        )
        self.bootstrap = ",".join(f"{host}:{port}" for host, port in addresses.values())

    def call(self, action: Callable[[SimulatedCluster], T]) -> T:
        """
        Run an action on the cluster in its thread, and return its result.
        """

        async def run() -> T:
            return action(self._cluster)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(_SECONDS)

    def every(self, seconds: float, action: Callable[[SimulatedCluster], object]) -> None:
        """
        Run an action every ``seconds`` seconds until the cluster stops, the first time after
        ``seconds``.
        """

        def run() -> None:
            action(self._cluster)
            self._loop.call_later(seconds, run)

        self._loop.call_soon_threadsafe(self._loop.call_later, seconds, run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_SECONDS)
        self._loop.close()

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _run(self) -> None:
        self._loop.run_until_complete(self._listen())
        self._loop.run_forever()

    async def _listen(self) -> None:
        self._servers = [
            await asyncio.start_server(self._serving(node_id), sock=listener)
            for node_id, listener in self._listeners.items()
        ]

    def _serving(
        self, node_id: int
    ) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]:
        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = self._loop.create_task(self._serve(node_id, reader, writer))
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)

        return accept

    async def _serve(
        self, node_id: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            # The client may disconnect at any time, even in the middle of a frame.
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                while await self._serve_one(node_id, reader, writer):
                    pass
        finally:
            writer.close()

    async def _serve_one(
        self, node_id: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """
        Handle the next request, and return whether the connection stays open.
        """
        frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        response: asyncio.Future[bytes | None] = self._loop.create_future()

        def reply(content: bytes | None) -> None:
            if not response.done():
                response.set_result(content)

        self._cluster.handle(node_id, frame, reply)
        if not expects_reply(frame) and not response.done():
            return True
        content = await response
        if content is None:
            return False
        writer.write(len(content).to_bytes(4, "big") + content)
        await writer.drain()
        return True
