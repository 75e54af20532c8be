"""
For the driver program: what only it hears of, the end of a query.

On Spark before 4.2, and wherever a query is stopped right after a batch, nobody asks the source for
more, so its process never learns that its last batch is complete.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import StreamingQueryListener

from pyspark_pykafka.errors import OptionsError, PykafkaError
from pyspark_pykafka.offsets import QUERY, StreamOffset
from pyspark_pykafka.options import NoStore, parse_stream_source
from pyspark_pykafka.progress.factory import make_progress_store, process_name
from pyspark_pykafka.progress.record import Owner
from pyspark_pykafka.progress.store import AFTERWARDS, ClaimLostError, advance
from pyspark_pykafka.progress.store_session import StoreSession
from pyspark_pykafka.retry import Backoff, Deadline, retry_until

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

logger = logging.getLogger("pyspark_pykafka")

_SECONDS = 30.0
_LEAST_PAUSE, _MOST_PAUSE = 0.2, 2.0
_LONGEST_CAUSE = 200
_NOBODY = Owner("", "", 0)


class ProgressListener(StreamingQueryListener):
    """
    Records the last batch of a query that has ended, and what ended it.

    ``options`` are those of the query's ``readStream``; queries with another store are left alone.
    Add it with ``spark.streams.addListener(ProgressListener(options))`` before the query starts.
    Raises :class:`~pyspark_pykafka.errors.OptionsError` for options that are wrong.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = parse_stream_source(options)
        if isinstance(self._options.progress_store, NoStore):
            msg = "progressStore is 'none'; it must be: consumerGroup or zookeeper"
            raise OptionsError((msg,))
        self._done: dict[str, StreamOffset] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """
        Do nothing: a query tells where it stands with its first progress.
        """

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """
        Do nothing: the query's own process records what an idle one has done.
        """

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """
        Remember where the query's sources stand that have this store.
        """
        for source in event.progress.sources:
            document = json.loads(source.endOffset or "null")
            if isinstance(document, dict) and QUERY in document:
                done = StreamOffset.from_json(document)
                if done.query and done.query.store == self._options.progress_store.name:
                    # Under the query's id: its next run may fail before it makes any progress.
                    self._done[str(event.progress.id)] = done

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """
        Record what the query's own process could not any more.
        """
        done = self._done.get(str(event.id))
        if done is None:
            return
        try:
            self._record(done, event.exception)
        except PykafkaError as error:
            # Nobody is left to raise it to: Spark drops what a listener raises.
            logger.warning(
                "the progress of query %s at its end is not recorded: %s", event.id, error
            )

    def _record(self, done: StreamOffset, exception: str | None) -> None:
        store = make_progress_store(self._options)
        keeper = StoreSession(store, AFTERWARDS + process_name())

        def finish() -> None:
            lacking = advance(store.read(), done, _NOBODY).records
            if lacking or exception:
                keeper.record(done)
            if exception:
                keeper.note_failure(done, exception.split("\n", 1)[0][:_LONGEST_CAUSE])

        try:
            retry_until(finish, Deadline.after(_SECONDS), Backoff(_LEAST_PAUSE, _MOST_PAUSE))
        except ClaimLostError:
            # The query runs again already, and records for itself.
            logger.info("query %s was started again", done.query)
        finally:
            keeper.close()
