"""
Creates the progress store that a query's options select.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark_pykafka.options import NoStore, ZooKeeperNodes
from pyspark_pykafka.progress.contract import NO_PROGRESS_RECORDER
from pyspark_pykafka.progress.recorder import StoreRecorder
from pyspark_pykafka.progress.store import check_topic_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyspark_pykafka.engines.metadata import MetadataClient
    from pyspark_pykafka.offsets import Assignment, Offsets
    from pyspark_pykafka.options import SourceOptions
    from pyspark_pykafka.progress.contract import ProgressRecorder
    from pyspark_pykafka.progress.store import ProgressStore, Records


def make_progress_recorder(options: SourceOptions) -> ProgressRecorder:
    """
    Return the receiver of a query's progress; it does not connect yet.
    """
    if isinstance(options.progress_store, NoStore):
        return NO_PROGRESS_RECORDER
    return StoreRecorder(
        lambda: make_progress_store(options),
        process_name(),
        # Open transactions are a part of the log, whatever the isolation level of the query.
        end_offsets=lambda tps: _metadata_client(options, "read_uncommitted").end_offsets(tps),
    )


def make_progress_store(options: SourceOptions) -> ProgressStore:
    """
    Return the store that the options select; without ``progressStore`` it is the group
    ``kafka.group.id``.
    """
    client = _metadata_client(options, options.isolation_level)
    if isinstance(options.progress_store, ZooKeeperNodes):
        # Not at the top: workers import this module with the reader, but need no store's client.
        from pyspark_pykafka.progress.zookeeper_store import ZooKeeperStore

        return ZooKeeperStore(options.progress_store, client.leader_addresses)
    from pyspark_pykafka.progress.group_store import GroupStore

    return GroupStore(options.kafka, options.kafka.get("group.id", "").strip(), client)


def _metadata_client(options: SourceOptions, isolation_level: str) -> MetadataClient:
    from pyspark_pykafka.engines.metadata import MetadataClient
    from pyspark_pykafka.engines.selection import metadata_backend

    backend = metadata_backend(options.kafka, isolation_level, options.engine)
    return MetadataClient(backend, options.fetch_offset_retry)


def existing_topics(options: SourceOptions, topics: Iterable[str]) -> Assignment:
    """
    Return the partitions and ids of the topics that exist on the options' brokers.
    """
    return _metadata_client(options, options.isolation_level).existing(topics)


def read_progress_records(options: SourceOptions, topics: Iterable[str] | None = None) -> Records:
    """
    Return the progress records in the store that the options select, for these topics or for all.
    """
    store = make_progress_store(options)
    try:
        return store.read(topics)
    finally:
        store.close()


def committed_offsets(
    options: SourceOptions,
    topics: Iterable[str],
    topic_ids: Callable[[Iterable[str]], Mapping[str, str]],
) -> Offsets:
    """
    Return the recorded offsets of these topics, from the store that the options select.

    ``topic_ids`` returns the current ids of topics. Raises :class:`ProgressError` if a topic has
    been deleted and recreated since its offsets were recorded.
    """
    records = read_progress_records(options, topics)
    check_topic_ids(records, topic_ids(sorted({tp.topic for tp in records})))
    return {tp: record.offset for tp, record in records.items()}


def process_name() -> str:
    """
    Return a name of this process that is unique to this call: ``"4711 on host #5f0c21e8"``.

    Processes in containers can share a process id and a host name.
    """
    return f"{os.getpid()} on {socket.gethostname()} #{uuid4().hex[:8]}"
