"""
Parses Spark's option map into the frozen options of a reader or a writer.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pyspark_pykafka.offsets import EARLIEST, LATEST
from pyspark_pykafka.options import table
from pyspark_pykafka.options.encoding_parse import read_encoding
from pyspark_pykafka.options.format_parse import read_formats
from pyspark_pykafka.options.offset_parse import (
    check_end,
    moves_with_time,
    partitions_at,
    read_end,
    read_start,
)
from pyspark_pykafka.options.offset_values import Committed, Latest
from pyspark_pykafka.options.option import Option, Scope
from pyspark_pykafka.options.option_reader import OptionReader
from pyspark_pykafka.options.store_parse import read_store
from pyspark_pykafka.options.store_values import ZooKeeperNodes
from pyspark_pykafka.options.values import (
    RackSource,
    SinkOptions,
    SourceOptions,
    Strategy,
    Subscribe,
    SubscribePattern,
)
from pyspark_pykafka.settings import Role

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_pykafka.settings import KafkaSettings

_NOT_LATEST = "a batch query cannot start at latest: it would read nothing"
_NOT_EARLIEST = "a batch query cannot end at earliest: it would read nothing"

_QUERY_NOT_EARLIEST = "a query cannot end at earliest: it would read nothing"
_STREAM_NOT_EARLIEST = "a stream cannot end at earliest: it would read nothing"
_FALLBACKS = {"error": None, "earliest": EARLIEST, "latest": LATEST}

_RACK_OPTIONS: tuple[Option[Any], ...] = (table.CLIENT_RACK_ENV, table.CLIENT_RACK_PROVIDER)
_STRATEGIES: tuple[Option[Any], ...] = (table.ASSIGN, table.SUBSCRIBE, table.SUBSCRIBE_PATTERN)


def parse_source(options: Mapping[str, str | None]) -> SourceOptions:
    """
    Return the options of a read, before it is known whether it is a batch or a stream.

    Raises :class:`OptionsError` listing all mistakes that do not depend on this.
    """
    reader = OptionReader(options, Scope.READ)
    source = _source(reader)
    check_end(reader, source, _QUERY_NOT_EARLIEST)
    reader.raise_mistakes()
    return source


def parse_batch_source(options: Mapping[str, str | None]) -> SourceOptions:
    """
    Return the options of ``spark.read``; raise :class:`OptionsError` listing all mistakes.
    """
    reader = OptionReader(options, Scope.BATCH_READ)
    source = _source(reader)
    if isinstance(source.starting_offsets, Latest):
        reader.mistakes.append(f"startingOffsets is 'latest'; {_NOT_LATEST}")
    if source.starting_offsets_fallback == LATEST:
        reader.mistakes.append(f"startingOffsetsFallback is 'latest'; {_NOT_LATEST}")
    for where in partitions_at(source.starting_offsets, LATEST):
        reader.mistakes.append(f"startingOffsets for {where} is {LATEST}; {_NOT_LATEST}")
    check_end(reader, source, _NOT_EARLIEST)
    if source.latest_per_key:
        reader.mistakes += [
            f"{option.name} and latestPerKey are set together; remove {option.name}: one task must "
            "see all records of a partition to find the latest of each key"
            for option in (table.MIN_PARTITIONS, table.MAX_RECORDS_PER_PARTITION)
            if reader.has(option)
        ]
        if source.isolation_level == "read_uncommitted":
            reader.mistakes.append(
                "kafka.isolation.level is 'read_uncommitted' and latestPerKey is set; it must be: "
                "read_committed, the default with latestPerKey, since an aborted record would hide "
                "the committed one of its key"
            )
    reader.raise_mistakes()
    return source


def parse_stream_source(options: Mapping[str, str | None]) -> SourceOptions:
    """
    Return the options of ``spark.readStream``; raise :class:`OptionsError` listing all mistakes.
    """
    reader = OptionReader(options, Scope.STREAM_READ)
    source = _source(reader)
    check_end(reader, source, _STREAM_NOT_EARLIEST)
    if moves_with_time(source.ending_offsets):
        reader.mistakes.append(
            "endingOffsets is relative (to now, or counted from the end), so it would move "
            "with each batch of a stream; it must be: latest, offsets, or a time with a zone"
        )
    minimum, maximum = source.min_offsets_per_trigger, source.max_offsets_per_trigger
    if minimum is not None and maximum is not None and minimum > maximum:
        reader.mistakes.append(
            f"minOffsetsPerTrigger is '{minimum}'; "
            f"it must be: at most maxOffsetsPerTrigger, {maximum}"
        )
    reader.raise_mistakes()
    return source


def parse_sink(options: Mapping[str, str | None], streaming: bool) -> SinkOptions:
    """
    Return the options of ``write`` or ``writeStream``.

    Raises :class:`OptionsError` listing all mistakes.
    """
    reader = OptionReader(options, Scope.STREAM_WRITE if streaming else Scope.BATCH_WRITE)
    guarantee, engine = reader.get(table.DELIVERY_GUARANTEE), reader.get(table.ENGINE)
    if guarantee == "exactly-once" and engine == "librdkafka":
        reader.mistakes.append(
            "deliveryGuarantee is 'exactly-once', which the engine librdkafka does not support; "
            "remove the option engine, or set it to: wire"
        )
    replicas = reader.find(table.LEDGER_REPLICATION_FACTOR)
    in_sync = reader.find(table.LEDGER_MIN_INSYNC_REPLICAS)
    if replicas is not None and in_sync is not None and in_sync > replicas:
        reader.mistakes.append(
            f"ledgerMinInsyncReplicas is {in_sync} and ledgerReplicationFactor is {replicas}; "
            f"it must be: at most {replicas}, otherwise no entry could ever be written"
        )
    sink = SinkOptions(
        engine=engine,
        topic=reader.find(table.SINK_TOPIC),
        kafka=reader.kafka_settings(Role.PRODUCER),
        delivery_guarantee=guarantee,
        transactional_id_prefix=reader.find(table.TRANSACTIONAL_ID_PREFIX),
        ledger_replication_factor=replicas,
        ledger_min_insync_replicas=in_sync,
        encoding=read_encoding(reader),
    )
    reader.raise_mistakes()
    return sink


def _source(reader: OptionReader) -> SourceOptions:
    source = SourceOptions(
        strategy=_strategy(reader),
        starting_offsets=read_start(reader),
        starting_offsets_fallback=_FALLBACKS[reader.get(table.STARTING_FALLBACK)],
        new_partition_offsets=_FALLBACKS[reader.get(table.NEW_PARTITION_OFFSETS)] or EARLIEST,
        ending_offsets=read_end(reader),
        fail_on_data_loss=reader.get(table.FAIL_ON_DATA_LOSS),
        poll_timeout_ms=reader.get(table.POLL_TIMEOUT),
        fetch_offset_num_retries=reader.get(table.FETCH_OFFSET_RETRIES),
        fetch_offset_retry_interval_ms=reader.get(table.FETCH_OFFSET_RETRY_INTERVAL),
        max_offsets_per_trigger=reader.find(table.MAX_OFFSETS_PER_TRIGGER),
        max_offsets_per_partition_per_trigger=reader.find(table.MAX_OFFSETS_PER_PARTITION),
        max_bytes_per_trigger=reader.find(table.MAX_BYTES_PER_TRIGGER),
        min_offsets_per_trigger=reader.find(table.MIN_OFFSETS_PER_TRIGGER),
        max_trigger_delay_ms=reader.get(table.MAX_TRIGGER_DELAY),
        push_down_filters=reader.get(table.PUSH_DOWN_FILTERS),
        max_timestamp_delay_ms=reader.find(table.MAX_TIMESTAMP_DELAY),
        min_partitions=reader.find(table.MIN_PARTITIONS),
        max_records_per_partition=reader.find(table.MAX_RECORDS_PER_PARTITION),
        latest_per_key=reader.get(table.LATEST_PER_KEY),
        group_id_prefix=reader.get(table.GROUP_ID_PREFIX),
        include_headers=reader.get(table.INCLUDE_HEADERS),
        kafka=(kafka := reader.kafka_settings(Role.CONSUMER)),
        engine=reader.get(table.ENGINE),
        max_fetch_memory=reader.get(table.MAX_FETCH_MEMORY),
        progress_store=read_store(reader, kafka),
        formats=read_formats(reader),
        rack_source=_rack_source(reader, kafka),
    )
    _check_no_loop(reader, source)
    has_group = bool(kafka.get("group.id", "").strip())
    has_progress = has_group or isinstance(source.progress_store, ZooKeeperNodes)
    if isinstance(source.starting_offsets, Committed) and not has_progress:
        reader.mistakes.append(
            "startingOffsets is 'committed', but kafka.group.id is missing; set it to the "
            "consumer group from whose committed offsets the query is to start"
        )
    return source


def _check_no_loop(reader: OptionReader, source: SourceOptions) -> None:
    topic = source.formats.dead_letter_topic
    if topic is not None and selects(source.strategy, topic):
        reader.mistakes.append(dead_letter_loop_mistake(table.DEAD_LETTER_TOPIC.name, topic))


def dead_letter_loop_mistake(name: str, topic: str) -> str:
    """
    Return the mistake of a query that reads its own dead-letter topic; ``name`` is the option or
    the class that was given the topic.
    """
    return (
        f"{name} is '{topic}', which this query reads, so its dead letters would be read again and "
        "again; give another topic, or a pattern that does not match it"
    )


def selects(strategy: Strategy, topic: str) -> bool:
    """
    Whether a query with this strategy reads the topic, if it exists.
    """
    if isinstance(strategy, SubscribePattern):
        return re.search(strategy.pattern, topic) is not None
    if isinstance(strategy, Subscribe):
        return topic in strategy.topics
    return any(tp.topic == topic for tp in strategy.partitions)


def _rack_source(reader: OptionReader, kafka: KafkaSettings) -> RackSource | None:
    variable = reader.find(table.CLIENT_RACK_ENV)
    provider = reader.find(table.CLIENT_RACK_PROVIDER)
    names = [option.name for option in _RACK_OPTIONS if reader.has(option)]
    if kafka.get("client.rack") is not None:
        names = ["kafka.client.rack", *names]
    if len(names) > 1:
        reader.mistakes.append(
            f"{', '.join(names)} are set together; set one of: kafka.client.rack (the same rack "
            "for all executors), clientRackEnv, clientRackProvider"
        )
    return variable or provider


def _strategy(reader: OptionReader) -> Strategy:
    names = [option.name for option in _STRATEGIES if reader.has(option)]
    if not names:
        reader.mistakes.append(
            "no topics to read are given; set exactly one of: subscribe, subscribePattern, assign"
        )
    elif len(names) > 1:
        reader.mistakes.append(
            f"{', '.join(names)} are set together; "
            "set exactly one of: subscribe, subscribePattern, assign"
        )
    assigned = reader.find(table.ASSIGN)
    topics = reader.find(table.SUBSCRIBE)
    pattern = reader.find(table.SUBSCRIBE_PATTERN)
    if assigned is not None:
        return assigned
    return SubscribePattern(pattern) if pattern is not None else Subscribe(topics or ())
