"""
Who is told how far a query has come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark_pykafka.offsets import StreamOffset


class Progress(Protocol):
    """
    Who is told how far a query has come; the offsets carry the query's mark.

    All methods raise what makes recording impossible for good.
    """

    def completed(self, done: StreamOffset) -> None:
        """
        Take note that everything before ``done`` is complete; it may be told more than once.
        """

    def replaying(self, start: StreamOffset, end: StreamOffset) -> None:
        """
        Take note that a batch is read again, since an earlier attempt failed.
        """

    def finish(self) -> None:
        """
        Record what is not recorded yet: the process may end after this.
        """


class NoProgress:
    """
    Records nothing.
    """

    def completed(self, done: StreamOffset) -> None:
        """
        Do nothing.
        """

    def replaying(self, start: StreamOffset, end: StreamOffset) -> None:
        """
        Do nothing.
        """

    def finish(self) -> None:
        """
        Do nothing.
        """


#: For a query whose progress is in its checkpoint only.
NOWHERE = NoProgress()
