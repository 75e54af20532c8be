"""
Parses Spark's option map into the frozen options of a reader or a writer.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pyspark_pykafka.offsets import EARLIEST, LATEST, TopicPartition
from pyspark_pykafka.options import table
from pyspark_pykafka.options.encoding_parse import read_encoding
from pyspark_pykafka.options.option import Option, Scope
from pyspark_pykafka.options.option_reader import OptionReader
from pyspark_pykafka.options.registry_parse import read_registry, read_subject
from pyspark_pykafka.options.registry_table import KEY_SUBJECT_OPTIONS, VALUE_SUBJECT_OPTIONS
from pyspark_pykafka.options.value_parsers import SCHEMA, InvalidOptionError
from pyspark_pykafka.options.values import (
    Acl,
    Committed,
    ConsumerGroup,
    Earliest,
    FormatOptions,
    GlobalTimestamp,
    LastOffsets,
    Latest,
    NoMatch,
    NoStore,
    OffsetLimit,
    Position,
    RackSource,
    SinkOptions,
    SourceOptions,
    SpecificOffsets,
    SpecificTimestamps,
    StoreOptions,
    Strategy,
    Subscribe,
    SubscribePattern,
    TimeAgo,
    ZooKeeperNodes,
)
from pyspark_pykafka.settings import Role

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_pykafka.options.values import ValueFormat
    from pyspark_pykafka.settings import KafkaSettings

_NOT_LATEST = "a batch query cannot start at latest: it would read nothing"
_NOT_EARLIEST = "a batch query cannot end at earliest: it would read nothing"

_QUERY_NOT_EARLIEST = "a query cannot end at earliest: it would read nothing"
_STREAM_NOT_EARLIEST = "a stream cannot end at earliest: it would read nothing"

# The formats whose values have a schema.
_STRUCTURED = ("json", "avro", "protobuf")
# The formats whose schemas a registry may have.
_REGISTERED = ("avro", "json", "protobuf")
_OR_STRUCTURED = "json, avro or protobuf"
_MAX_SCHEMA_LENGTH = 200

_FALLBACKS = {"error": None, "earliest": EARLIEST, "latest": LATEST}

_ZOOKEEPER_OPTIONS: tuple[Option[Any], ...] = (
    table.ZOOKEEPER_HOSTS,
    table.ZOOKEEPER_ID,
    table.ZOOKEEPER_ROOT,
    table.ZOOKEEPER_SESSION_TIMEOUT,
    table.ZOOKEEPER_DIGEST,
    table.ZOOKEEPER_ACL,
)
_RACK_OPTIONS: tuple[Option[Any], ...] = (table.CLIENT_RACK_ENV, table.CLIENT_RACK_PROVIDER)
_STRATEGIES: tuple[Option[Any], ...] = (table.ASSIGN, table.SUBSCRIBE, table.SUBSCRIBE_PATTERN)


def parse_source(options: Mapping[str, str | None]) -> SourceOptions:
    """
    Return the options of a read, before it is known whether it is a batch or a stream.

    Raises :class:`OptionsError` listing all mistakes that do not depend on this.
    """
    reader = OptionReader(options, Scope.READ)
    source = _source(reader)
    _check_end(reader, source, _QUERY_NOT_EARLIEST)
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
    for where in _partitions_at(source.starting_offsets, LATEST):
        reader.mistakes.append(f"startingOffsets for {where} is {LATEST}; {_NOT_LATEST}")
    _check_end(reader, source, _NOT_EARLIEST)
    reader.raise_mistakes()
    return source


def parse_stream_source(options: Mapping[str, str | None]) -> SourceOptions:
    """
    Return the options of ``spark.readStream``; raise :class:`OptionsError` listing all mistakes.
    """
    reader = OptionReader(options, Scope.STREAM_READ)
    source = _source(reader)
    _check_end(reader, source, _STREAM_NOT_EARLIEST)
    if _moves(source.ending_offsets):
        reader.mistakes.append(
            "endingOffsets is relative (a time ago, or counted from the end), so it would move "
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
        include_headers=reader.get(table.INCLUDE_HEADERS),
        kafka=reader.kafka_settings(Role.PRODUCER),
        checkpoint_location=reader.spark_option("checkpointLocation"),
        query_name=reader.spark_option("queryName"),
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
        starting_offsets=_starting(reader),
        starting_offsets_fallback=_FALLBACKS[reader.get(table.STARTING_FALLBACK)],
        new_partition_offsets=_FALLBACKS[reader.get(table.NEW_PARTITION_OFFSETS)] or EARLIEST,
        ending_offsets=_ending(reader),
        fail_on_data_loss=reader.get(table.FAIL_ON_DATA_LOSS),
        poll_timeout_ms=reader.get(table.POLL_TIMEOUT),
        fetch_offset_num_retries=reader.get(table.FETCH_OFFSET_RETRIES),
        fetch_offset_retry_interval_ms=reader.get(table.FETCH_OFFSET_RETRY_INTERVAL),
        max_offsets_per_trigger=reader.find(table.MAX_OFFSETS_PER_TRIGGER),
        max_offsets_per_partition_per_trigger=reader.find(table.MAX_OFFSETS_PER_PARTITION),
        max_bytes_per_trigger=reader.find(table.MAX_BYTES_PER_TRIGGER),
        min_offsets_per_trigger=reader.find(table.MIN_OFFSETS_PER_TRIGGER),
        max_trigger_delay_ms=reader.get(table.MAX_TRIGGER_DELAY),
        max_timestamp_delay_ms=reader.find(table.MAX_TIMESTAMP_DELAY),
        min_partitions=reader.find(table.MIN_PARTITIONS),
        max_records_per_partition=reader.find(table.MAX_RECORDS_PER_PARTITION),
        group_id_prefix=reader.get(table.GROUP_ID_PREFIX),
        include_headers=reader.get(table.INCLUDE_HEADERS),
        kafka=(kafka := reader.kafka_settings(Role.CONSUMER)),
        engine=reader.get(table.ENGINE),
        max_fetch_memory=reader.get(table.MAX_FETCH_MEMORY),
        progress_store=_store(reader, kafka),
        formats=_formats(reader),
        rack_source=_rack_source(reader, kafka),
    )
    _check_no_loop(reader, source)
    grouped = bool(kafka.get("group.id", "").strip())
    recorded = grouped or isinstance(source.progress_store, ZooKeeperNodes)
    if isinstance(source.starting_offsets, Committed) and not recorded:
        reader.mistakes.append(
            "startingOffsets is 'committed' and kafka.group.id is missing; set it to the "
            "consumer group whose committed offsets to start from"
        )
    return source


def _formats(reader: OptionReader) -> FormatOptions:
    formats = FormatOptions(
        value_format=reader.get(table.VALUE_FORMAT),
        key_format=reader.get(table.KEY_FORMAT),
        value_schema=_schema(reader, table.VALUE_SCHEMA, reader.get(table.VALUE_FORMAT)),
        key_schema=_schema(reader, table.KEY_SCHEMA, reader.get(table.KEY_FORMAT)),
        flatten=reader.get(table.FLATTEN),
        on_bad_record=reader.get(table.ON_BAD_RECORD),
        max_bad_records=reader.find(table.MAX_BAD_RECORDS),
        dead_letter_topic=reader.find(table.DEAD_LETTER_TOPIC),
        registry=read_registry(reader),
        value_subject=read_subject(reader, "value"),
        key_subject=read_subject(reader, "key"),
        value_message=_message(reader, table.VALUE_MESSAGE_NAME, reader.get(table.VALUE_FORMAT)),
        key_message=_message(reader, table.KEY_MESSAGE_NAME, reader.get(table.KEY_FORMAT)),
    )
    _check_registry(reader, formats)
    if formats.flatten and formats.value_format not in _STRUCTURED:
        reader.mistakes.append(
            f"flatten is true, but valueFormat is '{formats.value_format}'; set it to "
            f"{_OR_STRUCTURED}"
        )
    if formats.on_bad_record != "fail" and {*formats.by_column.values()} == {"raw"}:
        reader.mistakes.append(
            f"onBadRecord is '{formats.on_bad_record}', but nothing is decoded; set valueFormat or "
            "keyFormat"
        )
    if formats.max_bad_records is not None and formats.on_bad_record == "fail":
        reader.mistakes.append(
            "maxBadRecords is set, but onBadRecord is 'fail'; it must be: null, rescue or "
            "deadletter"
        )
    _check_dead_letters(reader, formats)
    return formats


def _check_dead_letters(reader: OptionReader, formats: FormatOptions) -> None:
    sets_aside = formats.on_bad_record == "deadletter"
    if sets_aside and not reader.has(table.DEAD_LETTER_TOPIC):
        reader.mistakes.append(
            "onBadRecord is 'deadletter' and deadLetterTopic is missing; set it to the topic for "
            "bad records"
        )
    if not sets_aside and reader.has(table.DEAD_LETTER_TOPIC):
        reader.mistakes.append(
            f"deadLetterTopic is set, but onBadRecord is '{formats.on_bad_record}'; it must be: "
            "deadletter"
        )
    if sets_aside:
        # Dead letters are written with the settings of the read.
        reader.check_kafka_settings(Role.PRODUCER)


def _check_no_loop(reader: OptionReader, source: SourceOptions) -> None:
    topic = source.formats.dead_letter_topic
    if topic is not None and _selects(source.strategy, topic):
        reader.mistakes.append(
            f"deadLetterTopic is '{topic}', which this query reads, so that bad records would come "
            "again and again; give another topic, or a pattern that does not match it"
        )


def _selects(strategy: Strategy, topic: str) -> bool:
    if isinstance(strategy, SubscribePattern):
        return re.search(strategy.pattern, topic) is not None
    if isinstance(strategy, Subscribe):
        return topic in strategy.topics
    return any(tp.topic == topic for tp in strategy.partitions)


def _check_registry(reader: OptionReader, formats: FormatOptions) -> None:
    if formats.registry is None:
        return
    if not {*formats.by_column.values()} & {*_REGISTERED}:
        reader.mistakes.append(
            "schema.registry.url is set, but no format uses it; set valueFormat or keyFormat to: "
            f"{' or '.join(_REGISTERED)}"
        )
    by_column = {"value": VALUE_SUBJECT_OPTIONS, "key": KEY_SUBJECT_OPTIONS}
    for column, options in by_column.items():
        if formats.by_column[column] in _REGISTERED:
            continue
        reader.mistakes += [
            f"{option.name} is set, but {column}Format is '{formats.by_column[column]}', which has "
            "no schema in the registry"
            for option in options
            if reader.has(option)
        ]


def _schema(reader: OptionReader, option: Option[str], kind: ValueFormat) -> str | None:
    text = reader.find(option)
    if text is None:
        return None
    if kind not in _STRUCTURED:
        name = option.name.replace("Schema", "Format")
        reader.mistakes.append(
            f"{option.name} is set, but {name} is '{kind}'; set it to {_OR_STRUCTURED}"
        )
    if kind != "json":
        return text
    try:
        return SCHEMA(text)
    except InvalidOptionError as cause:
        reader.mistakes.append(f"{option.name} is '{text[:_MAX_SCHEMA_LENGTH]}'; {cause}")
        return None


def _message(reader: OptionReader, option: Option[str], kind: ValueFormat) -> str | None:
    if kind != "protobuf" and reader.has(option):
        name = option.name.replace("MessageName", "Format")
        reader.mistakes.append(f"{option.name} is set, but {name} is '{kind}'; set it to protobuf")
    return reader.find(option)


def _store(reader: OptionReader, kafka: KafkaSettings) -> StoreOptions:
    kind = reader.get(table.PROGRESS_STORE)
    if kind == "zookeeper":
        return _zookeeper(reader)
    for option in _ZOOKEEPER_OPTIONS:
        if reader.has(option):
            reader.mistakes.append(
                f"{option.name} is set, but progressStore is '{kind}'; it must be: zookeeper"
            )
    group = kafka.get("group.id", "").strip()
    if kind == "none":
        return NoStore()
    if not group:
        reader.mistakes.append(
            "progressStore is 'consumerGroup' and kafka.group.id is missing; set it to the "
            "consumer group to commit to"
        )
    return ConsumerGroup(group)


def _zookeeper(reader: OptionReader) -> ZooKeeperNodes:
    for option in (table.ZOOKEEPER_HOSTS, table.ZOOKEEPER_ID):
        if not reader.has(option):
            reader.mistakes.append(
                f"progressStore is 'zookeeper' and {option.name} is missing; it must be: "
                f"{option.parser.expected}"
            )
    digest = reader.find(table.ZOOKEEPER_DIGEST)
    acl: Acl = reader.find(table.ZOOKEEPER_ACL) or ("open" if digest is None else "creator")
    if digest is None and acl != "open":
        reader.mistakes.append(
            f"zookeeperAcl is '{acl}' and zookeeperDigest is missing; "
            "set it to that user and password"
        )
    return ZooKeeperNodes(
        hosts=reader.find(table.ZOOKEEPER_HOSTS) or "",
        root=reader.get(table.ZOOKEEPER_ROOT),
        id=reader.find(table.ZOOKEEPER_ID) or "",
        session_timeout_ms=reader.get(table.ZOOKEEPER_SESSION_TIMEOUT),
        digest=digest,
        acl=acl,
    )


def _rack_source(reader: OptionReader, kafka: KafkaSettings) -> RackSource | None:
    variable = reader.find(table.CLIENT_RACK_ENV)
    provider = reader.find(table.CLIENT_RACK_PROVIDER)
    named = [option.name for option in _RACK_OPTIONS if reader.has(option)]
    if kafka.get("client.rack") is not None:
        named = ["kafka.client.rack", *named]
    if len(named) > 1:
        reader.mistakes.append(
            f"{', '.join(named)} are set together; set one of: kafka.client.rack (the same rack "
            "for all executors), clientRackEnv, clientRackProvider"
        )
    return variable or provider


def _strategy(reader: OptionReader) -> Strategy:
    named = [option.name for option in _STRATEGIES if reader.has(option)]
    if not named:
        reader.mistakes.append(
            "no topics to read are given; set exactly one of: subscribe, subscribePattern, assign"
        )
    elif len(named) > 1:
        reader.mistakes.append(
            f"{', '.join(named)} are set together; "
            "set exactly one of: subscribe, subscribePattern, assign"
        )
    assigned = reader.find(table.ASSIGN)
    topics = reader.find(table.SUBSCRIBE)
    pattern = reader.find(table.SUBSCRIBE_PATTERN)
    if assigned is not None:
        return assigned
    return SubscribePattern(pattern) if pattern is not None else Subscribe(topics or ())


def _starting(reader: OptionReader) -> OffsetLimit:
    no_match: NoMatch = "latest" if reader.get(table.NO_MATCH_STRATEGY) == "latest" else "error"
    # All three are parsed, so that mistakes in overridden options are reported too.
    everywhere = reader.find(table.STARTING_TIMESTAMP)
    by_partition = reader.find(table.STARTING_OFFSETS_BY_TIMESTAMP)
    offsets = reader.get(table.STARTING_OFFSETS)
    return _by_precedence(everywhere, by_partition, offsets, no_match)


def _ending(reader: OptionReader) -> OffsetLimit:
    everywhere = reader.find(table.ENDING_TIMESTAMP)
    by_partition = reader.find(table.ENDING_OFFSETS_BY_TIMESTAMP)
    return _by_precedence(everywhere, by_partition, reader.get(table.ENDING_OFFSETS), "latest")


def _by_precedence(
    everywhere: int | None,
    by_partition: tuple[tuple[TopicPartition, int], ...] | None,
    offsets: Committed | Earliest | Latest | SpecificOffsets | Position,
    no_match: NoMatch,
) -> OffsetLimit:
    if everywhere is not None:
        return GlobalTimestamp(everywhere, no_match)
    return offsets if by_partition is None else SpecificTimestamps(by_partition, no_match)


def _check_end(reader: OptionReader, source: SourceOptions, why: str) -> None:
    if isinstance(source.ending_offsets, Earliest):
        reader.mistakes.append(f"endingOffsets is 'earliest'; {why}")
    for where in _partitions_at(source.ending_offsets, EARLIEST):
        reader.mistakes.append(f"endingOffsets for {where} is {EARLIEST}; {why}")


def _moves(limit: OffsetLimit) -> bool:
    """
    Return whether a position moves with time.
    """
    positions: list[object] = [limit]
    if isinstance(limit, SpecificOffsets):
        positions = [*dict(limit.offsets).values(), *dict(limit.topics).values()]
    return any(isinstance(position, TimeAgo | LastOffsets) for position in positions)


def _partitions_at(position: OffsetLimit, word: int) -> list[str]:
    if not isinstance(position, SpecificOffsets):
        return []
    tps = [str(tp) for tp, at in position.offsets if at == word]
    return tps + [topic for topic, at in position.topics if at == word]
