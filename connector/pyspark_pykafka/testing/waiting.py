"""Waits for a condition with a deadline, and says at the end of it what was still missing."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

POLL_SECONDS = 0.05


class NotReadyError(RuntimeError):
    """A test server did not get into the state that was waited for."""


def wait_until(missing: Callable[[], str | None], seconds: float) -> None:
    """
    Wait until `missing` returns None, and fail when the time is over.

    Until then it returns what is still missing, as a sentence for the error's message.
    """
    end = time.monotonic() + seconds
    while (what := missing()) is not None:
        if time.monotonic() > end:
            msg = f"After {seconds:g} s: {what}"
            raise NotReadyError(msg)
        time.sleep(POLL_SECONDS)
