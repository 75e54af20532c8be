"""
Servers that a `with` statement starts and stops.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self


class Startable(ABC):
    """
    A server, or a cluster of them: `with` starts it, and stops it at the end of the block.
    """

    @abstractmethod
    def start(self) -> object:
        """
        Start the server, and return once it accepts requests.
        """

    @abstractmethod
    def stop(self) -> None:
        """
        Stop the server.
        """

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
