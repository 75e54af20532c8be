"""
Writes to several leaders, one of which cannot be reached.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.producing import batch_of, write
from tests.support.proxy import Proxy
from tests.support.stub_brokers import Behaviour, StubCluster

from pyspark_pykafka.engines.wire.network import connect
from pyspark_pykafka.retry import Deadline
from pyspark_pykafka.testing import Record

if TYPE_CHECKING:
    from collections.abc import Callable


class Behind(Behaviour):
    """
    Three brokers, of which node 1 is behind a proxy.
    """

    proxy_port = 0

    def port(self, node: int) -> int:
        return self.proxy_port if node == 1 else super().port(node)


def wait_until(condition: Callable[[], bool]) -> bool:
    limit, changed = Deadline.after(20), threading.Event()
    while not condition() and not limit.expired:
        changed.wait(0.05)
    return condition()


@pytest.mark.parametrize("kind", ["drop_syns", "black_hole"])
def test_unusable_leader_delays_no_records_of_others(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    While one leader drops SYNs, or is silent during the login, the others get their records; when
    it is back, it gets its own.
    """
    monkeypatch.setattr(connect, "ADDRESS_TIMEOUT_SECONDS", 600.0)
    # The one that cannot be used comes first.
    records = [Record(b"k", b"v", partition) for partition in (1, 0, 2)]
    with Proxy(("127.0.0.1", 1)) as proxy:
        getattr(proxy, kind)()
        behaviour = Behind(brokers=3, topics={"t": 3}, proxy_port=proxy.port)
        with StubCluster(behaviour) as stubs:
            proxy.target = ("127.0.0.1", stubs.ports[1])
            settings: dict[str, Any] = {
                "socket_connection_setup_timeout_ms": 600_000,
                "api_version_request_timeout_ms": 300_000,
                "request_timeout_ms": 300_000,
                "delivery_timeout_ms": 900_000,
            }
            rows = [batch_of([record]) for record in records]
            written: list[int] = []
            writing = threading.Thread(
                target=lambda: written.append(write(stubs.bootstrap, rows, "t", **settings)),
                daemon=True,
            )
            writing.start()
            assert wait_until(lambda: stubs.get("logs").keys() == {("t", 0), ("t", 2)})
            assert not written
            proxy.heal()
            proxy.disconnect(reset=True)
            writing.join(60)
            assert stubs.get("logs").keys() == {("t", 0), ("t", 1), ("t", 2)}

    assert written == [3]
