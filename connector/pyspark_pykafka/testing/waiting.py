"""
Waits for a condition; at the deadline, raises an error that states what is missing.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

POLL_SECONDS = 0.05


class NotReadyError(RuntimeError):
    """
    A test server did not become ready before the deadline.
    """


def wait_until(
    missing: Callable[[], str | None],
    seconds: float,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """
    Wait until `missing` returns None; raise `NotReadyError` after `seconds`.

    `missing` returns what is still missing, as a sentence for the error message.
    """
    deadline = now() + seconds
    while (reason := missing()) is not None:
        if now() > deadline:
            msg = f"After {seconds:g} s: {reason}"
            raise NotReadyError(msg)
        sleep(POLL_SECONDS)
