"""
The receiver of a query's progress, as the source sees it: independent of stores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark_pykafka.offsets import StreamOffset


class ProgressRecorder(Protocol):
    """
    Receives the progress of a query; the offsets carry the query's identity.

    Every method raises the error that has made recording impossible for good, if there is one.
    """

    def record_completed(self, completed: StreamOffset) -> None:
        """
        Record that every record before ``completed`` is processed; repeated calls are allowed.
        """

    def record_replay(self, start: StreamOffset, end: StreamOffset) -> None:
        """
        Record that the batch ``[start, end)`` is read again after a failed attempt.
        """

    def finish(self) -> None:
        """
        Flush unrecorded progress: the process may end after this call.
        """


class NoProgressRecorder:
    """
    Records nothing.
    """

    def record_completed(self, completed: StreamOffset) -> None:
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


#: For queries whose progress is recorded in the checkpoint only.
NO_PROGRESS_RECORDER = NoProgressRecorder()
