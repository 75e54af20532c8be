"""
Waits for input on connections.
"""

from __future__ import annotations

import threading

from pyspark_pykafka.engines.wire.network.poll import Wakeup, readable


def test_wait_until_a_time_that_has_passed_ends_at_once() -> None:
    """
    A wait until a time that has already passed, such as the end of a throttle time, does not block.
    """
    wakeup = Wakeup()
    waiting = threading.Thread(target=readable, args=([], -0.005, wakeup), daemon=True)
    waiting.start()
    waiting.join(10)
    is_blocked = waiting.is_alive()
    wakeup.set()
    waiting.join(10)
    wakeup.close()

    assert not is_blocked
