"""
Records the end of a query from the driver program, the only process that is notified of it.

On Spark before 4.2, and whenever a query is stopped right after a batch, Spark does not call the
source again, so its process never learns that the last batch is complete.
"""

from __future__ import annotations

import json
import logging
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import StreamingQueryListener

from pyspark_pykafka.errors import (
    BrokerUnavailableError,
    OptionsError,
    ProgressError,
    PykafkaError,
)
from pyspark_pykafka.offsets import QUERY, StreamOffset, offset_document
from pyspark_pykafka.options import NoStore, parse_stream_source
from pyspark_pykafka.progress.factory import (
    existing_topics,
    make_progress_store,
    process_name,
)
from pyspark_pykafka.progress.record import Owner
from pyspark_pykafka.progress.store import (
    AFTER_END_PREFIX,
    FENCED,
    ClaimLostError,
    advance,
    format_topics,
)
from pyspark_pykafka.progress.store_session import StoreSession
from pyspark_pykafka.retry import Backoff, Deadline, retry_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

    from pyspark_pykafka.offsets import Assignment

logger = logging.getLogger("pyspark_pykafka")

_RETRY_SECONDS = 30.0
_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.2, 2.0
_MAX_CAUSE_LENGTH = 200
_NO_OWNER = Owner("", "", 0)


class ProgressListener(StreamingQueryListener):
    """
    Records the last batch of a query that has ended, and the error that ended it.

    ``options`` are the options of the query's ``readStream``. Queries with another progress store
    are ignored, and topics of other clusters are not recorded. Raises
    :class:`~pyspark_pykafka.errors.OptionsError` for invalid options, or if they select no progress
    store. Add the listener before the query starts::

        spark.streams.addListener(ProgressListener(options))
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = parse_stream_source(options)
        if isinstance(self._options.progress_store, NoStore):
            msg = "progressStore is 'none'; it must be: consumerGroup or zookeeper"
            raise OptionsError((msg,))
        # The offsets by the query's id, not the run's: the next run may fail before it makes any
        # progress. Within a query, by the id in the source's offsets: each source may read another
        # cluster.
        self._completed: dict[str, dict[str, StreamOffset]] = {}
        #: The last run of each query that was started since the listener was added.
        self._runs: dict[str, str] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """
        Remember the run: the end of an earlier run may be reported after this run has started.
        """
        self._runs[str(event.id)] = str(event.runId)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """
        Do nothing: the process of an idle query records its progress itself.
        """

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """
        Remember the end offsets of the query's sources that use this store.
        """
        # On clients of Spark Connect before 4.2 the property `sources` has offsets that are not
        # JSON.
        for source in json.loads(event.progress.json)["sources"]:
            document = offset_document(source.get("endOffset"))
            if document is not None and QUERY in document:
                completed = StreamOffset.from_json(document)
                if completed.query and completed.query.store == self._options.progress_store.name:
                    sources = self._completed.setdefault(str(event.progress.id), {})
                    sources[completed.query.id] = completed

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """
        Record the progress that the query's own process could no longer record.
        """
        for completed in self._completed.get(str(event.id), {}).values():
            try:
                self._record(completed, event)
            except _RestartedError:
                logger.info("Query %s has been restarted", event.id)
            except PykafkaError as error:
                # Spark ignores exceptions of listeners.
                logger.warning(
                    "The final progress of query %s was not recorded: %s", event.id, error
                )

    def _record(
        self,
        completed: StreamOffset,
        event: QueryTerminatedEvent,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        store = make_progress_store(self._options)
        session = StoreSession(store, AFTER_END_PREFIX + process_name())
        exception = event.exception
        topics = {tp.topic for tp in completed.offsets}

        def finish() -> None:
            if self._is_restarted(event):
                raise _RestartedError
            existing = _without_other_topics(completed, existing_topics(self._options, topics))
            if not existing.offsets:
                logger.warning(
                    "The final progress of query %s is not recorded: its topics (%s) belong to a "
                    "different cluster than the listener's, or were deleted in the meantime",
                    *(event.id, format_topics(topics)),
                )
                return
            missing = advance(store.read(), existing, _NO_OWNER).records
            if missing or exception:
                session.record(existing)
            if exception:
                session.record_failure(existing, exception.split("\n", 1)[0][:_MAX_CAUSE_LENGTH])

        def finish_unless_restarted() -> None:
            with _detecting_restart(session):
                finish()

        backoff = Backoff(_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS)
        deadline = Deadline.after(_RETRY_SECONDS, now, sleep)
        try:
            retry_until(finish_unless_restarted, deadline, backoff)
        finally:
            session.close()

    def _is_restarted(self, event: QueryTerminatedEvent) -> bool:
        return self._runs.get(str(event.id), str(event.runId)) != str(event.runId)


class _RestartedError(Exception):
    """
    The query is running again: its process records its progress, and must not be expelled.
    """


@contextmanager
def _detecting_restart(session: StoreSession) -> Iterator[None]:
    """
    Raise :class:`_RestartedError` if a later process of the query has claimed the store, and a
    retriable error if only the next claim can show that.
    """
    try:
        yield
    except ClaimLostError as loss:
        if not session.has_claimed:
            # Only the claim of a later process interrupts a first claim.
            raise _RestartedError from loss
        # A write without a response, or an expired session.
        raise BrokerUnavailableError(str(loss)) from loss
    except ProgressError as error:
        if error.condition == FENCED:
            raise _RestartedError from error
        raise


def _without_other_topics(completed: StreamOffset, existing: Assignment) -> StreamOffset:
    """
    Return the offsets of the partitions that exist, without topics that have another id: another
    cluster has a topic of the same name, or it was deleted and recreated since.

    Topics on brokers before 2.8 have no ids, and count as equal.
    """
    others = completed.recreated_topics(StreamOffset({}, existing.topic_ids))
    offsets = {
        tp: completed.offsets[tp]
        for tp in existing.partitions
        if tp in completed.offsets and tp.topic not in others
    }
    return replace(completed, offsets=offsets)
