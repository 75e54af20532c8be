"""
Waits for input on several connections at once.
"""

from __future__ import annotations

import math
import select
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_pykafka.engines.wire.network.connection import Connection


def readable(connections: Sequence[Connection], seconds: float) -> list[Connection]:
    """
    Return the connections that have input, waiting up to ``seconds`` for the first of them.
    """
    ready = [connection for connection in connections if connection.has_buffered_input]
    by_fileno = {connection.fileno(): connection for connection in connections}
    poll = select.poll()
    for fileno in by_fileno:
        poll.register(fileno, select.POLLIN)
    # Rounded up: 0 would not wait, and the caller would spin through the last millisecond.
    events = poll.poll(0 if ready else math.ceil(seconds * 1000))
    return list(dict.fromkeys([*ready, *(by_fileno[fileno] for fileno, _ in events)]))
