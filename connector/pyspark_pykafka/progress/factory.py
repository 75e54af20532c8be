"""
Which store a query's options mean.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

from pyspark_pykafka.options import NoStore, ZooKeeperNodes
from pyspark_pykafka.progress.contract import NO_PROGRESS_SINK
from pyspark_pykafka.progress.recorder import Recorder
from pyspark_pykafka.progress.store import check_topic_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyspark_pykafka.offsets import Offsets
    from pyspark_pykafka.options import SourceOptions
    from pyspark_pykafka.progress.contract import ProgressSink
    from pyspark_pykafka.progress.store import ProgressStore, Records


def make_progress_sink(options: SourceOptions) -> ProgressSink:
    """
    Return who keeps the progress of a query; nothing is connected yet.
    """
    if isinstance(options.progress_store, NoStore):
        return NO_PROGRESS_SINK
    return Recorder(lambda: make_progress_store(options), process_name())


def make_progress_store(options: SourceOptions) -> ProgressStore:
    """
    Return the store; without one in the options it is the group of ``kafka.group.id``.
    """
    # A worker, which imports this with its reader, has no use for any client of these.
    from pyspark_pykafka.engines.metadata import MetadataClient
    from pyspark_pykafka.engines.selection import metadata_backend

    backend = metadata_backend(options.kafka, options.isolation_level, options.engine)
    broker = MetadataClient(backend, options.fetch_offset_retry)
    if isinstance(options.progress_store, ZooKeeperNodes):
        from pyspark_pykafka.progress.zookeeper_store import ZooKeeperStore

        return ZooKeeperStore(options.progress_store, broker.leader_addresses)
    from pyspark_pykafka.progress.group_store import GroupStore

    return GroupStore(options.kafka, options.kafka.get("group.id", "").strip(), broker)


def read_records(options: SourceOptions, topics: Iterable[str] | None = None) -> Records:
    """
    Return what the options' store holds, of these topics if any are named.
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
    Return the offsets that the options' store holds for these topics.

    Raises :class:`ProgressError` if a topic was deleted and recreated since, by the present ids
    that ``topic_ids`` returns.
    """
    records = read_records(options, topics)
    check_topic_ids(records, topic_ids(sorted({tp.topic for tp in records})))
    return {tp: record.offset for tp, record in records.items()}


def process_name() -> str:
    """
    Return what people call this process.
    """
    return f"{os.getpid()} on {socket.gethostname()}"
