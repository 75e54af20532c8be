"""
The page's data for a cluster, made from progress stores, end offsets and dead-letter topics. It
covers every query that records its progress, wherever its driver runs.
"""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark_pykafka.engines.first_contact import shared_api_timeout
from pyspark_pykafka.engines.metadata import MetadataClient
from pyspark_pykafka.engines.selection import group_backend, metadata_backend
from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.failures.dead_letters import (
    dead_letter_fetch_settings,
    read_dead_letters,
    unreplayed_ranges,
)
from pyspark_pykafka.metrics.store_lag import LagReader, PartitionLag
from pyspark_pykafka.metrics.unread_records import UnreadRecords
from pyspark_pykafka.options import ZooKeeperNodes, parse_stream_source
from pyspark_pykafka.progress.factory import make_progress_store
from pyspark_pykafka.progress.group_store import GroupStore
from pyspark_pykafka.ui.page_data import (
    PageData,
    PageDeadLetters,
    PageError,
    PagePartition,
    PageQuery,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark_pykafka.failures.dead_letters import DeadLetter
    from pyspark_pykafka.offsets import OffsetRange
    from pyspark_pykafka.options import SourceOptions
    from pyspark_pykafka.progress.record import FailedAttempts
    from pyspark_pykafka.progress.store import Records

#: A cluster with more groups is not searched, since each group costs a request.
MAX_GROUPS = 100

#: Number of offsets at the end of a partition that are searched for its last dead letter.
_LAST_LETTERS = 10
_MAX_TEXT_LENGTH = 200

_REDISCOVER_SECONDS = 60.0


@dataclass(slots=True)
class _Store:
    """
    One progress store, and the reader of its lag.
    """

    options: SourceOptions
    lag_reader: LagReader
    topics: frozenset[str] | None = None

    @property
    def id(self) -> str:
        """
        The id of the query on the page: a consumer group and a ZooKeeper id can have the same name.
        """
        return self.options.progress_store.name

    @property
    def name(self) -> str:
        store = self.options.progress_store
        if isinstance(store, ZooKeeperNodes):
            return store.id
        return self.options.kafka.get("group.id", "")


class ClusterSource:
    """
    Reads the page's data for a cluster each time it is called.

    ``options`` are the brokers and the login, ``stores`` the options of each progress store. If no
    stores are given, the cluster is searched for consumer groups written by queries of this
    connector. ``dead_letters`` are the names of dead-letter topics.
    """

    def __init__(
        self,
        options: Mapping[str, str],
        stores: Sequence[Mapping[str, str]] = (),
        dead_letters: Sequence[str] = (),
        now: Callable[[], float] = time.time,
    ) -> None:
        self._options = {**options, "subscribePattern": "."}
        self._source = parse_stream_source(self._options)
        self._is_searching = not stores
        self._dead_letters = tuple(dead_letters)
        self._letter_settings = dead_letter_fetch_settings(self._options)
        self._backend = metadata_backend(
            self._source.kafka, self._source.isolation_level, self._source.engine
        )
        self._metadata = MetadataClient(self._backend, self._source.fetch_offset_retry)
        # As in `pykafka deadletter`, a letter of an open transaction does not count.
        self._letter_lookup = MetadataClient(
            metadata_backend(self._source.kafka, "read_committed", self._source.engine),
            self._source.fetch_offset_retry,
        )
        self._unread = UnreadRecords(self._source)
        self._now = now
        self._searched_at: float | None = None
        self._stores = {store.id: store for store in (self._store(options) for options in stores)}

    def __call__(self) -> PageData:
        """
        Return the page's data. Errors of the brokers and stores are raised.
        """
        with shared_api_timeout(self._source.kafka):
            return self._page_data()

    def _page_data(self) -> PageData:
        if self._is_searching:
            self._search()
        stores = [(store, *self._read(store)) for store in self._stores.values()]
        return PageData(
            source=f"cluster {self._source.kafka.get('bootstrap.servers')}",
            queries=tuple(
                self._page_query(store, records, has_writer)
                for store, records, has_writer in stores
            ),
            errors=tuple(
                PageError(store.name, failing.attempts, _failure_text(failing))
                for store, records, _ in stores
                if (failing := _failing(records)) is not None
            ),
            dead_letters=tuple(
                letter for topic in self._dead_letters for letter in self._dead_letters_of(topic)
            ),
        )

    def _store(self, options: Mapping[str, str]) -> _Store:
        source = parse_stream_source({**self._options, **options})
        return _Store(source, LagReader(self._metadata, self._unread, self._now))

    def _search(self) -> None:
        """
        Add the consumer groups of queries to the stores, at most once a minute.
        """
        if self._searched_at is not None and self._now() - self._searched_at < _REDISCOVER_SECONDS:
            return
        for group in self._unknown_groups():
            store = self._store({"progressStore": "consumerGroup", "kafka.group.id": group})
            if any(record.owner is not None for record in self._read(store)[0].values()):
                self._stores[store.id] = store
        self._searched_at = self._now()

    def _unknown_groups(self) -> list[str]:
        """
        Return the consumer groups that are not among the stores.

        Raises :class:`OptionsError` if there are more than :data:`MAX_GROUPS`.
        """
        # This reports unreachable brokers, without librdkafka's log of each attempt.
        self._backend.describe_topics(())
        known = {store.name for store in self._stores.values()}
        groups = [
            group for group in group_backend(self._source.kafka).list_groups() if group not in known
        ]
        if len(groups) > MAX_GROUPS:
            msg = (
                f"the cluster has {len(groups)} consumer groups, too many to search them for "
                "groups of queries; name yours with --group"
            )
            raise OptionsError((msg,))
        return groups

    def _read(self, store: _Store) -> tuple[Records, bool | None]:
        """
        Return the records of a store, and whether a query is writing to it, or None if unknown.
        """
        with closing(make_progress_store(store.options)) as progress_store:
            records = progress_store.read(store.topics)
            has_writer = (
                progress_store.has_writer() if isinstance(progress_store, GroupStore) else None
            )
        # The metadata client requests only these topics from now on.
        store.topics = frozenset(tp.topic for tp in records) or None
        return records, has_writer

    def _page_query(self, store: _Store, records: Records, has_writer: bool | None) -> PageQuery:
        failing = _failing(records)
        batches = [record.batch for record in records.values() if record.batch is not None]
        return PageQuery(
            id=store.id,
            name=store.name,
            state=_state(has_writer, failing),
            partitions=tuple(_page_partition(lag) for lag in store.lag_reader.read(records)),
            batch=max(batches, default=None),
            replays=0 if failing is None else failing.attempts,
        )

    def _dead_letters_of(self, topic: str) -> Iterable[PageDeadLetters]:
        """
        Yield, for each partition with records that were not replayed, their number in offsets, and
        the last dead letter among them.
        """
        replayed = self._replay_positions(topic)
        for unread in unreplayed_ranges(self._letter_lookup, topic, replayed):
            start = max(unread.start, unread.end - _LAST_LETTERS)
            last = self._last_letter(replace(unread, start=start))
            yield PageDeadLetters(topic, str(unread.tp.partition), unread.size, last)

    def _replay_positions(self, topic: str) -> Records:
        replay_store = {"progressStore": "consumerGroup", "kafka.group.id": f"{topic}-replay"}
        with closing(make_progress_store(self._store(replay_store).options)) as store:
            return store.read([topic])

    def _last_letter(self, offset_range: OffsetRange) -> str:
        letters = [*read_dead_letters([offset_range], self._letter_settings)]
        return f"the last: {_letter_text(letters[-1])}" if letters else "no dead letters of queries"


def _page_partition(lag: PartitionLag) -> PagePartition:
    return PagePartition(lag.topic, str(lag.partition), lag.offset, lag.end, lag.lag, lag.seconds)


def _state(has_writer: bool | None, failing: FailedAttempts | None) -> str:
    if failing is not None:
        return "failing"
    if has_writer is None:
        return "recorded"
    return "running" if has_writer else "ended"


def _failing(records: Records) -> FailedAttempts | None:
    return next((record.failing for record in records.values() if record.failing is not None), None)


def _failure_text(failing: FailedAttempts) -> str:
    cause = f": {failing.cause}" if failing.cause else ""
    return f"micro-batch {failing.batch} failed{cause}"[:_MAX_TEXT_LENGTH]


def _letter_text(letter: DeadLetter) -> str:
    reason = letter.reason
    error = f"{reason.get('error.class')}: {reason.get('error.message')}".split("\n", 1)[0]
    return f"{letter.source} at {letter.source_offset}, {error}"[:_MAX_TEXT_LENGTH]
