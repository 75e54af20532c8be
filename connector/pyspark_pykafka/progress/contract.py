"""
Who is told how far a query has come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark_pykafka.offsets import StreamOffset


class ProgressSink(Protocol):
    """
    Who is told how far a query has come; the offsets carry the query's mark.

    All methods raise what makes recording impossible for good.
    """

    def record_completed(self, done: StreamOffset) -> None:
        """
        Take note that everything before ``done`` is complete; it may be told more than once.
        """

    def record_replay(self, start: StreamOffset, end: StreamOffset) -> None:
        """
        Take note that a batch is read again, since an earlier attempt failed.
        """

    def finish(self) -> None:
        """
        Record what is not recorded yet: the process may end after this.
        """


class NoProgressSink:
    """
    Records nothing.
    """

    def record_completed(self, done: StreamOffset) -> None:
        """
        Do nothing.
        """

    def record_replay(self, start: StreamOffset, end: StreamOffset) -> None:
        """
        Do nothing.
        """

    def finish(self) -> None:
        """
        Do nothing.
        """


#: For a query whose progress is in its checkpoint only.
NO_PROGRESS_SINK = NoProgressSink()
