"""
From Spark's map of texts to the frozen options of a reader or a writer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark_pykafka.offsets import EARLIEST, LATEST, TopicPartition
from pyspark_pykafka.options import table
from pyspark_pykafka.options.option import Option, Scope
from pyspark_pykafka.options.option_reader import OptionReader
from pyspark_pykafka.options.values import (
    Acl,
    Committed,
    ConsumerGroup,
    Earliest,
    GlobalTimestamp,
    Latest,
    NoMatch,
    NoStore,
    OffsetLimit,
    SinkOptions,
    SourceOptions,
    SpecificOffsets,
    SpecificTimestamps,
    StoreOptions,
    Strategy,
    Subscribe,
    SubscribePattern,
    ZooKeeperNodes,
)
from pyspark_pykafka.settings import Role

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_pykafka.settings import KafkaSettings

_NOT_LATEST = "a batch query can't start at latest, it would read nothing"
_NOT_EARLIEST = "a batch query can't end at earliest, it would read nothing"

_NO_END = "a stream that ends at earliest would read nothing"

_FALLBACKS = {"error": None, "earliest": EARLIEST, "latest": LATEST}

_OF_ZOOKEEPER: tuple[Option[Any], ...] = (
    table.ZOOKEEPER_HOSTS,
    table.ZOOKEEPER_ID,
    table.ZOOKEEPER_ROOT,
    table.ZOOKEEPER_SESSION_TIMEOUT,
    table.ZOOKEEPER_DIGEST,
    table.ZOOKEEPER_ACL,
)
_STRATEGIES: tuple[Option[Any], ...] = (table.ASSIGN, table.SUBSCRIBE, table.SUBSCRIBE_PATTERN)


def parse_batch_source(options: Mapping[str, str | None]) -> SourceOptions:
    """
    Return the options of ``spark.read``; raise :class:`OptionsError` with all mistakes.
    """
    given = OptionReader(options, Scope.BATCH_READ)
    source = _source(given)
    if isinstance(source.starting_offsets, Latest):
        given.mistakes.append(f"startingOffsets is 'latest'; {_NOT_LATEST}")
    if source.starting_offsets_fallback == LATEST:
        given.mistakes.append(f"startingOffsetsFallback is 'latest'; {_NOT_LATEST}")
    for where in _named_at(source.starting_offsets, LATEST):
        given.mistakes.append(f"startingOffsets for {where} is {LATEST}; {_NOT_LATEST}")
    _refuse_earliest_end(given, source, _NOT_EARLIEST)
    given.raise_mistakes()
    return source


def parse_stream_source(options: Mapping[str, str | None]) -> SourceOptions:
    """
    Return the options of ``spark.readStream``; raise :class:`OptionsError` with all mistakes.
    """
    given = OptionReader(options, Scope.STREAM_READ)
    source = _source(given)
    _refuse_earliest_end(given, source, _NO_END)
    least, most = source.min_offsets_per_trigger, source.max_offsets_per_trigger
    if least is not None and most is not None and least > most:
        given.mistakes.append(
            f"minOffsetsPerTrigger is '{least}'; it must be: at most maxOffsetsPerTrigger, {most}"
        )
    given.raise_mistakes()
    return source


def parse_sink(options: Mapping[str, str | None], streaming: bool) -> SinkOptions:
    """
    Return the options of ``write`` or ``writeStream``; raise :class:`OptionsError` likewise.
    """
    given = OptionReader(options, Scope.STREAM_WRITE if streaming else Scope.BATCH_WRITE)
    guarantee, engine = given.get(table.DELIVERY_GUARANTEE), given.get(table.ENGINE)
    if guarantee == "exactly-once" and engine == "librdkafka":
        given.mistakes.append(
            "deliveryGuarantee is 'exactly-once', which the engine librdkafka has no way to do; "
            "leave the option engine out, or set it to: wire"
        )
    replicas = given.find(table.LEDGER_REPLICATION_FACTOR)
    in_sync = given.find(table.LEDGER_MIN_INSYNC_REPLICAS)
    if replicas is not None and in_sync is not None and in_sync > replicas:
        given.mistakes.append(
            f"ledgerMinInsyncReplicas is {in_sync} and ledgerReplicationFactor {replicas}; it must "
            "not be more, or no entry could ever be written"
        )
    sink = SinkOptions(
        engine=engine,
        topic=given.find(table.SINK_TOPIC),
        include_headers=given.get(table.INCLUDE_HEADERS),
        kafka=given.kafka(Role.PRODUCER),
        checkpoint_location=given.own("checkpointLocation"),
        query_name=given.own("queryName"),
        delivery_guarantee=guarantee,
        transactional_id_prefix=given.find(table.TRANSACTIONAL_ID_PREFIX),
        ledger_replication_factor=replicas,
        ledger_min_insync_replicas=in_sync,
    )
    given.raise_mistakes()
    return sink


def _source(given: OptionReader) -> SourceOptions:
    source = SourceOptions(
        strategy=_strategy(given),
        starting_offsets=_starting(given),
        starting_offsets_fallback=_FALLBACKS[given.get(table.STARTING_FALLBACK)],
        new_partition_offsets=_FALLBACKS[given.get(table.NEW_PARTITION_OFFSETS)] or EARLIEST,
        ending_offsets=_ending(given),
        fail_on_data_loss=given.get(table.FAIL_ON_DATA_LOSS),
        poll_timeout_ms=given.get(table.POLL_TIMEOUT),
        fetch_offset_num_retries=given.get(table.FETCH_OFFSET_RETRIES),
        fetch_offset_retry_interval_ms=given.get(table.FETCH_OFFSET_RETRY_INTERVAL),
        max_offsets_per_trigger=given.find(table.MAX_OFFSETS_PER_TRIGGER),
        max_offsets_per_partition_per_trigger=given.find(table.MAX_OFFSETS_PER_PARTITION),
        max_bytes_per_trigger=given.find(table.MAX_BYTES_PER_TRIGGER),
        min_offsets_per_trigger=given.find(table.MIN_OFFSETS_PER_TRIGGER),
        max_trigger_delay_ms=given.get(table.MAX_TRIGGER_DELAY),
        max_timestamp_delay_ms=given.find(table.MAX_TIMESTAMP_DELAY),
        min_partitions=given.find(table.MIN_PARTITIONS),
        max_records_per_partition=given.find(table.MAX_RECORDS_PER_PARTITION),
        group_id_prefix=given.get(table.GROUP_ID_PREFIX),
        include_headers=given.get(table.INCLUDE_HEADERS),
        kafka=(kafka := given.kafka(Role.CONSUMER)),
        engine=given.get(table.ENGINE),
        max_fetch_memory=given.get(table.MAX_FETCH_MEMORY),
        progress_store=_store(given, kafka),
    )
    grouped = bool(kafka.get("group.id", "").strip())
    recorded = grouped or isinstance(source.progress_store, ZooKeeperNodes)
    if isinstance(source.starting_offsets, Committed) and not recorded:
        given.mistakes.append(
            "startingOffsets is 'committed' and kafka.group.id is missing; it must name the "
            "consumer group whose offsets are meant"
        )
    return source


def _store(given: OptionReader, kafka: KafkaSettings) -> StoreOptions:
    word = given.get(table.PROGRESS_STORE)
    if word == "zookeeper":
        return _zookeeper(given)
    for option in _OF_ZOOKEEPER:
        if given.has(option):
            given.mistakes.append(
                f"{option.name} is given, and progressStore is '{word}'; it must be: zookeeper"
            )
    group = kafka.get("group.id", "").strip()
    if word == "none":
        return NoStore()
    if not group:
        given.mistakes.append(
            "progressStore is 'consumerGroup' and kafka.group.id is missing; it must name the "
            "consumer group to commit to"
        )
    return ConsumerGroup(group)


def _zookeeper(given: OptionReader) -> ZooKeeperNodes:
    for option in (table.ZOOKEEPER_HOSTS, table.ZOOKEEPER_ID):
        if not given.has(option):
            given.mistakes.append(
                f"progressStore is 'zookeeper' and {option.name} is missing; it must be: "
                f"{option.parser.expected}"
            )
    digest = given.find(table.ZOOKEEPER_DIGEST)
    acl: Acl = given.find(table.ZOOKEEPER_ACL) or ("open" if digest is None else "creator")
    if digest is None and acl != "open":
        given.mistakes.append(
            f"zookeeperAcl is '{acl}' and zookeeperDigest is missing; it must say who that is"
        )
    return ZooKeeperNodes(
        hosts=given.find(table.ZOOKEEPER_HOSTS) or "",
        root=given.get(table.ZOOKEEPER_ROOT),
        id=given.find(table.ZOOKEEPER_ID) or "",
        session_timeout_ms=given.get(table.ZOOKEEPER_SESSION_TIMEOUT),
        digest=digest,
        acl=acl,
    )


def _strategy(given: OptionReader) -> Strategy:
    named = [option.name for option in _STRATEGIES if given.has(option)]
    if not named:
        given.mistakes.append(
            "what to read is missing; one of these options must be given: "
            "subscribe, subscribePattern, assign"
        )
    elif len(named) > 1:
        given.mistakes.append(
            f"{', '.join(named)} are given together; only one of these options can be given: "
            "subscribe, subscribePattern, assign"
        )
    assigned = given.find(table.ASSIGN)
    topics = given.find(table.SUBSCRIBE)
    pattern = given.find(table.SUBSCRIBE_PATTERN)
    if assigned is not None:
        return assigned
    return SubscribePattern(pattern) if pattern is not None else Subscribe(topics or ())


def _starting(given: OptionReader) -> OffsetLimit:
    no_match: NoMatch = "latest" if given.get(table.NO_MATCH_STRATEGY) == "latest" else "error"
    # All three are read, so that the mistakes of those that lose are told, too.
    everywhere = given.find(table.STARTING_TIMESTAMP)
    by_partition = given.find(table.STARTING_OFFSETS_BY_TIMESTAMP)
    offsets = given.get(table.STARTING_OFFSETS)
    return _first(everywhere, by_partition, offsets, no_match)


def _ending(given: OptionReader) -> OffsetLimit:
    everywhere = given.find(table.ENDING_TIMESTAMP)
    by_partition = given.find(table.ENDING_OFFSETS_BY_TIMESTAMP)
    return _first(everywhere, by_partition, given.get(table.ENDING_OFFSETS), "latest")


def _first(
    everywhere: int | None,
    by_partition: tuple[tuple[TopicPartition, int], ...] | None,
    offsets: Committed | Earliest | Latest | SpecificOffsets,
    no_match: NoMatch,
) -> OffsetLimit:
    if everywhere is not None:
        return GlobalTimestamp(everywhere, no_match)
    return offsets if by_partition is None else SpecificTimestamps(by_partition, no_match)


def _refuse_earliest_end(given: OptionReader, source: SourceOptions, why: str) -> None:
    if isinstance(source.ending_offsets, Earliest):
        given.mistakes.append(f"endingOffsets is 'earliest'; {why}")
    for where in _named_at(source.ending_offsets, EARLIEST):
        given.mistakes.append(f"endingOffsets for {where} is {EARLIEST}; {why}")


def _named_at(position: OffsetLimit, word: int) -> list[str]:
    if not isinstance(position, SpecificOffsets):
        return []
    tps = [str(tp) for tp, at in position.offsets if at == word]
    return tps + [topic for topic, at in position.topics if at == word]
