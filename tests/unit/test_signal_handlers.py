"""
Handlers of signals that are replaced for a while.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from pyspark_pykafka.signal_handlers import replaceable_handlers, restore_handlers

if TYPE_CHECKING:
    import pytest


def test_a_handler_that_python_did_not_install_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    If a program that embeds Python has installed a handler, Python reports None for it, and could
    not restore it.
    """
    known = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(
        signal, "getsignal", lambda number: None if number == signal.SIGTERM else known
    )

    handlers = replaceable_handlers("SIGINT", "SIGTERM", "SIGNAL_OF_ANOTHER_PLATFORM")

    assert handlers == {signal.SIGINT: known}
    restore_handlers(handlers)
    assert signal.getsignal(signal.SIGINT) is known
