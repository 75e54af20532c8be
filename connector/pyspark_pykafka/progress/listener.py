"""
Records the end of a query from the driver program, the only process that is notified of it.

On Spark before 4.2, and whenever a query is stopped right after a batch, Spark does not call the
source again, so its process never learns that the last batch is complete.
"""

from __future__ import annotations

import json
import logging
import time
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import StreamingQueryListener

from pyspark_pykafka.errors import OptionsError, PykafkaError
from pyspark_pykafka.offsets import QUERY, StreamOffset, offset_document
from pyspark_pykafka.options import NoStore, parse_stream_source
from pyspark_pykafka.progress.factory import make_progress_store, process_name
from pyspark_pykafka.progress.record import Owner
from pyspark_pykafka.progress.store import AFTER_END_PREFIX, ClaimLostError, advance
from pyspark_pykafka.progress.store_session import StoreSession
from pyspark_pykafka.retry import Backoff, Deadline, retry_until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

logger = logging.getLogger("pyspark_pykafka")

_RETRY_SECONDS = 30.0
_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.2, 2.0
_MAX_CAUSE_LENGTH = 200
_NO_OWNER = Owner("", "", 0)


class ProgressListener(StreamingQueryListener):
    """
    Records the last batch of a query that has ended, and the error that ended it.

    ``options`` are the options of the query's ``readStream``; queries with another progress store
    are ignored. Raises :class:`~pyspark_pykafka.errors.OptionsError` for invalid options, or if
    they select no progress store. Add the listener before the query starts::

        spark.streams.addListener(ProgressListener(options))
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = parse_stream_source(options)
        if isinstance(self._options.progress_store, NoStore):
            msg = "progressStore is 'none'; it must be: consumerGroup or zookeeper"
            raise OptionsError((msg,))
        self._completed: dict[str, StreamOffset] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """
        Do nothing: the first progress event has the offsets.
        """

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
                    # By the query's id: its next run may fail before it makes any progress.
                    self._completed[str(event.progress.id)] = completed

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """
        Record the progress that the query's own process could no longer record.
        """
        completed = self._completed.get(str(event.id))
        if completed is None:
            return
        try:
            self._record(completed, event.exception)
        except PykafkaError as error:
            # Spark ignores exceptions of listeners.
            logger.warning("The final progress of query %s was not recorded: %s", event.id, error)

    def _record(
        self,
        completed: StreamOffset,
        exception: str | None,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        store = make_progress_store(self._options)
        session = StoreSession(store, AFTER_END_PREFIX + process_name())

        def finish() -> None:
            missing = advance(store.read(), completed, _NO_OWNER).records
            if missing or exception:
                session.record(completed)
            if exception:
                session.record_failure(completed, exception.split("\n", 1)[0][:_MAX_CAUSE_LENGTH])

        backoff = Backoff(_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS)
        try:
            retry_until(finish, Deadline.after(_RETRY_SECONDS, now, sleep), backoff)
        except ClaimLostError:
            # The query is running again, and records its progress itself.
            logger.info("Query %s has been restarted", completed.query)
        finally:
            session.close()
