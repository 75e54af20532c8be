"""
Every option of the connector, declared once; parsing, error messages and docs/options.md use it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pyspark_pykafka.options.json_offsets import OFFSETS, PARTITIONS, START, TIMESTAMPS
from pyspark_pykafka.options.option import Option, Scope
from pyspark_pykafka.options.registry_table import REGISTRY_OPTIONS
from pyspark_pykafka.options.value_parsers import (
    BOOLEAN,
    CREDENTIALS,
    DURATION,
    ENTRY_POINT,
    HOSTS,
    NODE_NAME,
    NODE_PATH,
    PATTERN,
    PREFIX,
    SCHEMA_TEXT,
    TEXT,
    TOPIC,
    TOPICS,
    VARIABLE,
    byte_size,
    long_number,
    one_of,
    whole_number,
)

if TYPE_CHECKING:
    from pyspark_pykafka.options.format_values import OnBadRecord, ValueFormat
    from pyspark_pykafka.options.store_values import Acl
    from pyspark_pykafka.options.values import DeliveryGuarantee

ASSIGN = Option(
    "assign",
    PARTITIONS,
    "The partitions to read, and no others.",
    Scope.READ,
)
SUBSCRIBE = Option(
    "subscribe",
    TOPICS,
    "The topics to read, including partitions added while a query runs.",
    Scope.READ,
)
SUBSCRIBE_PATTERN = Option(
    "subscribePattern",
    PATTERN,
    "Read every topic whose name contains a match of this expression; anchor it with `^` and "
    "`$` to match whole names. Kafka's internal topics and ledgers of exactly-once streams are "
    "excluded; `subscribe` can name them.",
    Scope.READ,
)
STARTING_TIMESTAMP = Option(
    "startingTimestamp",
    long_number(0),
    "Start every partition at its first record with this timestamp (ms since 1970 UTC) or a "
    "later one. Overrides `startingOffsetsByTimestamp` and `startingOffsets`.",
    Scope.READ,
)
STARTING_OFFSETS_BY_TIMESTAMP = Option(
    "startingOffsetsByTimestamp",
    TIMESTAMPS,
    "Start each partition at its first record with the given timestamp or a later one. Every "
    "partition to read must be listed, unless `startingOffsetsFallback` is set. Overrides "
    "`startingOffsets`.",
    Scope.READ,
)
STARTING_OFFSETS = Option(
    "startingOffsets",
    START,
    "Where to start; [examples](positions.md). A batch cannot start at `latest`. `committed` means "
    "the offsets of the consumer group `kafka.group.id` or, with `progressStore=zookeeper`, those "
    "in ZooKeeper. A stream uses this option for its first batch only: afterwards the checkpoint "
    "decides, and `newPartitionOffsets` applies to new partitions.",
    Scope.READ,
    default="earliest",
    stream_default="latest",
)
NO_MATCH_STRATEGY = Option(
    "startingOffsetsByTimestampStrategy",
    one_of("error", "latest"),
    "What to do with a partition that has no record at or after the starting timestamp: `error`"
    " fails the query, `latest` starts at the partition's end.",
    Scope.READ,
    default="error",
)
STARTING_FALLBACK = Option(
    "startingOffsetsFallback",
    one_of("error", "earliest", "latest"),
    "Where to start partitions that `startingOffsets` or `startingOffsetsByTimestamp` does not "
    "cover: those missing from its JSON object, or without a committed offset. `error` fails "
    "the query. A batch cannot start at `latest`.",
    Scope.READ,
    default="error",
)
NEW_PARTITION_OFFSETS = Option(
    "newPartitionOffsets",
    one_of("earliest", "latest"),
    "Where to start partitions that appear while a query runs or is stopped; `latest` is the "
    "partition's end when the query first sees it.",
    Scope.STREAM_READ,
    default="earliest",
    no_effect=Scope.BATCH_READ,
)
ENDING_TIMESTAMP = Option(
    "endingTimestamp",
    long_number(0),
    "End every partition before its first record with this timestamp (ms since 1970 UTC) or a "
    "later one; if there is no such record, at the log's end when the batch is planned. Overrides "
    "`endingOffsetsByTimestamp` and `endingOffsets`.",
    Scope.READ,
)
ENDING_OFFSETS_BY_TIMESTAMP = Option(
    "endingOffsetsByTimestamp",
    TIMESTAMPS,
    "End each partition before its first record with the given timestamp or a later one; if there "
    "is no such record, at the log's end when the batch is planned. Overrides `endingOffsets`.",
    Scope.READ,
)
ENDING_OFFSETS = Option(
    "endingOffsets",
    OFFSETS,
    "Where to end (exclusive); it cannot be `earliest`. A stream reads up to this end: with "
    "`availableNow` the query then ends, with other triggers it stays idle. A stream's end cannot "
    "be relative to now, or to the end of the log.",
    Scope.READ,
    default="latest",
)
FAIL_ON_DATA_LOSS = Option(
    "failOnDataLoss",
    BOOLEAN,
    "Fail the query when records that it should read no longer exist. If false, log the missing"
    " records and continue.",
    Scope.READ,
    default="true",
)
POLL_TIMEOUT = Option(
    "kafkaConsumer.pollTimeoutMs",
    long_number(1),
    "How long a task waits for the next records of its partition before it fails, in "
    "milliseconds. A topic counts as deleted only after brokers have not known it for this "
    "long.",
    Scope.READ,
    default="120000",
)
FETCH_OFFSET_RETRIES = Option(
    "fetchOffset.numRetries",
    whole_number(0),
    "Number of attempts of the driver to read offsets; 0 means 1. Also the number of retries of a "
    "task whose offset range ends beyond the end of the log; the engine `wire` makes at least 2.",
    Scope.READ,
    default="3",
)
FETCH_OFFSET_RETRY_INTERVAL = Option(
    "fetchOffset.retryIntervalMs",
    long_number(0),
    "How long the driver waits before it requests offsets again, in milliseconds.",
    Scope.READ,
    default="1000",
)
MAX_OFFSETS_PER_TRIGGER = Option(
    "maxOffsetsPerTrigger",
    long_number(1),
    "Maximum number of offsets per micro-batch, divided among the partitions in proportion to "
    "their backlog.",
    Scope.STREAM_READ,
    no_effect=Scope.BATCH_READ,
)
MAX_OFFSETS_PER_PARTITION = Option(
    "maxOffsetsPerPartitionPerTrigger",
    long_number(1),
    "Maximum number of offsets per partition and micro-batch, so that a hot partition cannot "
    "fill the batch.",
    Scope.STREAM_READ,
    no_effect=Scope.BATCH_READ,
)
MAX_BYTES_PER_TRIGGER = Option(
    "maxBytesPerTrigger",
    byte_size(1 << 20, 1 << 50),
    "Approximate maximum size of a micro-batch, in bytes as compressed in the log. The sizes of "
    "records are estimated: the 64 partitions with the largest backlogs are sampled. Records of "
    "other partitions, and of those that cannot be sampled, count as average. Requires the engine "
    "`wire`.",
    Scope.STREAM_READ,
    no_effect=Scope.BATCH_READ,
)
MIN_OFFSETS_PER_TRIGGER = Option(
    "minOffsetsPerTrigger",
    long_number(1),
    "Delay a micro-batch until at least this many offsets are available, or `maxTriggerDelay` "
    "has passed.",
    Scope.STREAM_READ,
    no_effect=Scope.BATCH_READ,
)
MAX_TRIGGER_DELAY = Option(
    "maxTriggerDelay",
    DURATION,
    "Maximum time to wait for `minOffsetsPerTrigger`.",
    Scope.STREAM_READ,
    default="15m",
    no_effect=Scope.BATCH_READ,
)
MIN_PARTITIONS = Option(
    "minPartitions",
    whole_number(1),
    "Minimum number of tasks, met approximately by splitting offset ranges. By default there is "
    "one task for each partition that has records to read, and usually a single one for a "
    "micro-batch of up to 5,000 offsets in up to 32 ranges.",
    Scope.READ,
)
MAX_RECORDS_PER_PARTITION = Option(
    "maxRecordsPerPartition",
    long_number(1),
    "Maximum number of offsets per task.",
    Scope.READ,
)
PUSH_DOWN_FILTERS = Option(
    "pushDownFilters",
    BOOLEAN,
    "Set to true only if this `load()` is used in a single query, once, with a single filter. "
    "Filters that Spark pushes down (4.1 and newer, with "
    "`spark.sql.python.filterPushdown.enabled`) then [narrow the ranges to "
    "read](migrating.md#filters). Spark keeps the narrowed plan: any other use of the DataFrame or "
    "view, also in a union or join, lacks rows without an error.",
    Scope.BATCH_READ,
    default="false",
)
MAX_TIMESTAMP_DELAY = Option(
    "maxTimestampDelay",
    DURATION,
    "Set only if no record's timestamp is earlier, by more than this delay, than the timestamp of "
    "a preceding record in its partition. With `pushDownFilters`, a filter on `timestamp` then "
    "also ends the read early. Records that break this condition are missing from the result.",
    Scope.BATCH_READ,
)
LATEST_PER_KEY = Option(
    "latestPerKey",
    BOOLEAN,
    "Read only the latest record of each key of a partition; if that record is a tombstone (its "
    "value is NULL), the key has no row. Each partition is read twice by one task, whose memory "
    "grows with its distinct keys. A record without a key is an error. `kafka.isolation.level` is "
    "`read_committed` and cannot be changed.",
    Scope.BATCH_READ,
    default="false",
)
GROUP_ID_PREFIX = Option(
    "groupIdPrefix",
    TEXT,
    "Prefix of generated consumer group ids. No effect if `kafka.group.id` is set.",
    Scope.READ,
    default="spark-kafka-relation",
    stream_default="spark-kafka-source",
)
INCLUDE_HEADERS = Option(
    "includeHeaders",
    BOOLEAN,
    "Add the column `headers` to a read. A write uses that column whenever it is present.",
    Scope.READ,
    default="false",
    no_effect=Scope.WRITE,
)
ENGINE = Option(
    "engine",
    one_of("auto", "wire", "librdkafka"),
    "The engine that reads and writes records: `wire` (compiled, fast) or `librdkafka` "
    "(portable). `auto` uses `wire` whenever the settings allow it.",
    Scope.ALL,
    default="auto",
)
MAX_FETCH_MEMORY = Option(
    "maxFetchMemory",
    byte_size(1 << 20, 1 << 33),
    "Maximum memory for the records that a task is reading: fetched, decompressed and as Arrow "
    "columns. Each compressed record batch must fit into it when decompressed; the columns of a "
    "single large batch may take as much memory again. `kafka.receive.message.max.bytes` limits "
    "record batches that are not compressed.",
    Scope.READ,
    default="64m",
)
CLIENT_RACK_ENV = Option(
    "clientRackEnv",
    VARIABLE,
    "The environment variable that holds the rack of each executor, to [fetch from the nearest "
    "replica](deploying.md#several-zones). An executor without it reads from the leader.",
    Scope.READ,
)
CLIENT_RACK_PROVIDER = Option(
    "clientRackProvider",
    ENTRY_POINT,
    "The [entry point](deploying.md#several-zones) of an installed package whose function returns "
    "the rack of the Python process that calls it; called once in each process that reads. A "
    "process for which it returns None reads from the leader.",
    Scope.READ,
)
PROGRESS_STORE = Option(
    "progressStore",
    one_of("none", "consumerGroup", "zookeeper"),
    "Where to record a query's progress besides the checkpoint: in the consumer group "
    "`kafka.group.id`, where Kafka's own tools show its lag, or in ZooKeeper. A batch records "
    "nothing; it uses the store only for `startingOffsets=committed`.",
    Scope.READ,
    default="none",
)
ZOOKEEPER_HOSTS = Option(
    "zookeeperHosts",
    HOSTS,
    "The ZooKeeper servers for `progressStore=zookeeper`.",
    Scope.READ,
)
ZOOKEEPER_ID = Option(
    "zookeeperId",
    NODE_NAME,
    "The name of this query's progress in ZooKeeper; only one query at a time can use it.",
    Scope.READ,
)
ZOOKEEPER_ROOT = Option(
    "zookeeperRoot",
    NODE_PATH,
    "The parent node in ZooKeeper. Below it each `zookeeperId`, topic and partition has its own"
    " node.",
    Scope.READ,
    default="/pykafka",
)
ZOOKEEPER_SESSION_TIMEOUT = Option(
    "zookeeperSessionTimeoutMs",
    whole_number(1_000),
    "How long ZooKeeper waits for an unresponsive process before another query can take its "
    "place, in milliseconds.",
    Scope.READ,
    default="10000",
)
ZOOKEEPER_DIGEST = Option(
    "zookeeperDigest",
    CREDENTIALS,
    "User and password for ZooKeeper's digest authentication.",
    Scope.READ,
    secret=True,
)
ZOOKEEPER_ACL: Option[Acl] = Option(
    "zookeeperAcl",
    one_of("open", "creator", "readable"),
    "Who may access the nodes that the connector creates: `open`, everyone; `creator`, only the"
    " user of `zookeeperDigest` (the default if that is set); `readable`, that user, and "
    "everyone may read.",
    Scope.READ,
)
VALUE_FORMAT: Option[ValueFormat] = Option(
    "valueFormat",
    one_of("raw", "text", "json", "avro", "protobuf", "debezium-json", "debezium-avro"),
    "The format in which `value` is read or written: `raw` leaves the bytes as they are, `text` is "
    "UTF-8, `json` is JSON with the type given by the schema or by `valueSchema`, `avro` is Avro's "
    "binary encoding with the schema in `valueSchema`, `protobuf` is the message "
    "`valueMessageName` of `valueSchema`, `debezium-json` and `debezium-avro` are [change events "
    "of Debezium](debezium.md), which can only be read. A write takes the type of the column. "
    "See [Typed topics](typed-topics.md).",
    Scope.ALL,
    default="raw",
)
KEY_FORMAT: Option[ValueFormat] = Option(
    "keyFormat",
    one_of("raw", "text", "json", "avro", "protobuf"),
    "The format in which `key` is read or written; like `valueFormat`.",
    Scope.ALL,
    default="raw",
)
VALUE_SCHEMA = Option(
    "valueSchema",
    SCHEMA_TEXT,
    "The type or schema of `value`. `json`: the type, as DDL or JSON text; a schema given to "
    "`.schema(...)` replaces it. `debezium-json`: the type of a row. `avro` and `debezium-avro`: "
    "the JSON text of the schema that values were written with. `protobuf`: the path of a file "
    "that `protoc --include_imports --descriptor_set_out` has written, its bytes in base64, or the "
    "text of a `.proto` file. In a write, it is the Avro or Protobuf schema to encode with, or the "
    "text of the JSON Schema to register. When `json` is written, the type of a read has no "
    "effect: the schema is derived from the column.",
    Scope.ALL,
)
KEY_SCHEMA = Option(
    "keySchema",
    SCHEMA_TEXT,
    "The type of `key`; like `valueSchema`.",
    Scope.ALL,
)
IGNORE_NULL_FIELDS = Option(
    "ignoreNullFields",
    BOOLEAN,
    "Leave out the fields of structs that are NULL when `json` is written, as `to_json` does. If "
    "false, they are `null`.",
    Scope.WRITE,
    default="true",
)
VALUE_MESSAGE_NAME = Option(
    "valueMessageName",
    TEXT,
    "The full name of the Protobuf message in `value`, such as `com.shop.Order`. The default is "
    "the only message of `valueSchema`, or the first one of the registry's schema.",
    Scope.ALL,
)
KEY_MESSAGE_NAME = Option(
    "keyMessageName",
    TEXT,
    "The full name of the Protobuf message in `key`; like `valueMessageName`.",
    Scope.ALL,
)
FLATTEN = Option(
    "flatten",
    BOOLEAN,
    "Turn the fields of `value` into columns, beside `_topic`, `_partition`, `_offset` and "
    "`_timestamp`. Requires `valueFormat` `json`, `avro`, `protobuf`, `debezium-json` or "
    "`debezium-avro`.",
    Scope.READ,
    default="false",
)
DEBEZIUM_ROWS = Option(
    "debeziumRows",
    BOOLEAN,
    "Make the changed row the value of a change event: the row after the change, or before it if "
    "the row was deleted. `_op` is the operation, and `_ts` the time at which Debezium handled it. "
    "If false, the value has `before`, `after`, `op` and `ts`. Requires `valueFormat` "
    "`debezium-json` or `debezium-avro`.",
    Scope.READ,
    default="false",
)
DEBEZIUM_TOMBSTONES: Option[Literal["drop", "keep"]] = Option(
    "debeziumTombstones",
    one_of("drop", "keep"),
    "Whether a tombstone, which follows the change event of a deleted row, becomes a row whose "
    "value is NULL (`keep`), or no row (`drop`). Requires `valueFormat` `debezium-json` or "
    "`debezium-avro`.",
    Scope.READ,
    default="drop",
)
ON_BAD_RECORD: Option[OnBadRecord] = Option(
    "onBadRecord",
    one_of("fail", "null", "rescue", "deadletter"),
    "What to do with a key or value that cannot be decoded: `fail` the query; `null`, set the "
    "fields that do not fit to NULL, as `from_json` does; `rescue`, do so and add the columns "
    "`_raw`, its bytes, and `_error`, the reason; `deadletter`, write the record to "
    "`deadLetterTopic`, and leave its row out.",
    Scope.READ,
    default="fail",
)
ON_UNKNOWN_FIELD: Option[Literal["skip", "rescue"]] = Option(
    "onUnknownField",
    one_of("skip", "rescue"),
    "What to do with the fields of a JSON value, at any depth, that the schema does not name: "
    "`skip` them; or `rescue`, add the column `_rescued` with a JSON object of them. Requires "
    "`valueFormat` `json`.",
    Scope.READ,
    default="skip",
)
MAX_BAD_RECORDS = Option(
    "maxBadRecords",
    long_number(0),
    "How many bad records each range of offsets that a task reads may have before the task fails, "
    "with `onBadRecord` `null`, `rescue` or `deadletter`. By default there is no limit.",
    Scope.READ,
)
DEAD_LETTER_TOPIC = Option(
    "deadLetterTopic",
    TOPIC,
    "The topic for bad records with `onBadRecord=deadletter`. It must exist on the brokers "
    "that the query reads from.",
    Scope.READ,
)
SINK_TOPIC = Option(
    "topic",
    TOPIC,
    "The topic for every row. Overrides the column `topic`.",
    Scope.WRITE,
)
DELIVERY_GUARANTEE: Option[DeliveryGuarantee] = Option(
    "deliveryGuarantee",
    one_of("at-least-once", "exactly-once"),
    "The effect of a failure on rows: `at-least-once` loses none and may duplicate some; "
    "`exactly-once` makes every row of a batch write or micro-batch visible exactly once to "
    "consumers that read committed records, and only after all of them have been written.",
    Scope.WRITE,
    default="at-least-once",
)
TRANSACTIONAL_ID_PREFIX = Option(
    "transactionalIdPrefix",
    PREFIX,
    "Prefix of the transactional ids; only one write or query at a time may use it. A stream "
    "keeps its ledger in the topic `<prefix>-ledger`. The default is `pykafka-` and the query's"
    " id in a stream, and `pykafka-` and a new id in each batch write; brokers remember those "
    "ids for seven days.",
    Scope.WRITE,
)
LEDGER_REPLICATION_FACTOR = Option(
    "ledgerReplicationFactor",
    whole_number(1, 32_767),
    "Replication factor of an exactly-once stream's ledger topic when it is created. The "
    "default is 3, or the number of brokers if there are fewer.",
    Scope.STREAM_WRITE,
    no_effect=Scope.BATCH_WRITE,
)
LEDGER_MIN_INSYNC_REPLICAS = Option(
    "ledgerMinInsyncReplicas",
    whole_number(1, 32_767),
    "How many replicas of the ledger topic must have an entry before it counts "
    "(`min.insync.replicas`). The default is one fewer than the replicas, but at most 2.",
    Scope.STREAM_WRITE,
    no_effect=Scope.BATCH_WRITE,
)

#: All options, in the order of docs/options.md.
OPTIONS: tuple[Option[Any], ...] = (
    ASSIGN,
    SUBSCRIBE,
    SUBSCRIBE_PATTERN,
    STARTING_TIMESTAMP,
    STARTING_OFFSETS_BY_TIMESTAMP,
    STARTING_OFFSETS,
    NO_MATCH_STRATEGY,
    STARTING_FALLBACK,
    NEW_PARTITION_OFFSETS,
    ENDING_TIMESTAMP,
    ENDING_OFFSETS_BY_TIMESTAMP,
    ENDING_OFFSETS,
    FAIL_ON_DATA_LOSS,
    POLL_TIMEOUT,
    FETCH_OFFSET_RETRIES,
    FETCH_OFFSET_RETRY_INTERVAL,
    MAX_OFFSETS_PER_TRIGGER,
    MAX_OFFSETS_PER_PARTITION,
    MAX_BYTES_PER_TRIGGER,
    MIN_OFFSETS_PER_TRIGGER,
    MAX_TRIGGER_DELAY,
    MIN_PARTITIONS,
    MAX_RECORDS_PER_PARTITION,
    PUSH_DOWN_FILTERS,
    MAX_TIMESTAMP_DELAY,
    LATEST_PER_KEY,
    GROUP_ID_PREFIX,
    INCLUDE_HEADERS,
    VALUE_FORMAT,
    VALUE_SCHEMA,
    VALUE_MESSAGE_NAME,
    KEY_FORMAT,
    KEY_SCHEMA,
    KEY_MESSAGE_NAME,
    IGNORE_NULL_FIELDS,
    FLATTEN,
    DEBEZIUM_ROWS,
    DEBEZIUM_TOMBSTONES,
    ON_BAD_RECORD,
    ON_UNKNOWN_FIELD,
    MAX_BAD_RECORDS,
    DEAD_LETTER_TOPIC,
    *REGISTRY_OPTIONS,
    SINK_TOPIC,
    ENGINE,
    MAX_FETCH_MEMORY,
    CLIENT_RACK_ENV,
    CLIENT_RACK_PROVIDER,
    PROGRESS_STORE,
    ZOOKEEPER_HOSTS,
    ZOOKEEPER_ID,
    ZOOKEEPER_ROOT,
    ZOOKEEPER_SESSION_TIMEOUT,
    ZOOKEEPER_DIGEST,
    ZOOKEEPER_ACL,
    DELIVERY_GUARANTEE,
    TRANSACTIONAL_ID_PREFIX,
    LEDGER_REPLICATION_FACTOR,
    LEDGER_MIN_INSYNC_REPLICAS,
)

#: The options by their lower-case names: Spark passes names in lower case.
BY_KEY: dict[str, Option[Any]] = {option.key: option for option in OPTIONS}

#: The options that Spark itself adds for a source or a sink.
SPARK_OPTIONS = frozenset({"path", "checkpointlocation", "queryname"})
