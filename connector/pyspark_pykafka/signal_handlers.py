"""
The handlers of signals that this process may replace for a while.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def replaceable_handlers(*names: str) -> dict[int, Any]:
    """
    Return the handlers of the named signals, by number.

    Signals that this platform lacks, such as SIGHUP on Windows, are left out. So are signals whose
    handler was not installed from Python, as in an embedded interpreter: it could not be restored.
    """
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    handlers = {number: signal.getsignal(number) for number in numbers}
    return {number: handler for number, handler in handlers.items() if handler is not None}


def restore_handlers(handlers: Mapping[int, Any]) -> None:
    """
    Install the handlers again.
    """
    for number, handler in handlers.items():
        signal.signal(number, handler)
