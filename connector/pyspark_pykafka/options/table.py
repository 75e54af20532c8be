"""
Every option of the connector, declared once: parsing, errors and documentation come from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark_pykafka.options.json_offsets import OFFSETS, PARTITIONS, START, TIMESTAMPS
from pyspark_pykafka.options.option import Option, Scope
from pyspark_pykafka.options.value_parsers import (
    BOOLEAN,
    CREDENTIALS,
    DURATION,
    HOSTS,
    NODE_NAME,
    NODE_PATH,
    PATTERN,
    PREFIX,
    TEXT,
    TOPIC,
    TOPICS,
    byte_size,
    long_number,
    one_of,
    whole_number,
)

if TYPE_CHECKING:
    from pyspark_pykafka.options.values import Acl, DeliveryGuarantee

ASSIGN = Option(
    "assign",
    PARTITIONS,
    "Read exactly these partitions.",
    Scope.READ,
)
SUBSCRIBE = Option(
    "subscribe",
    TOPICS,
    "Read these topics, with partitions that are added while a query runs.",
    Scope.READ,
)
SUBSCRIBE_PATTERN = Option(
    "subscribePattern",
    PATTERN,
    "Read the topics in whose name the expression is found; anchor it with ^ and $ for whole "
    "names. Kafka's internal topics are left out.",
    Scope.READ,
)
STARTING_TIMESTAMP = Option(
    "startingTimestamp",
    long_number(0),
    "Start every partition at its first record of this time (ms since 1970 UTC) or later; "
    "wins over startingOffsetsByTimestamp and startingOffsets.",
    Scope.READ,
)
STARTING_OFFSETS_BY_TIMESTAMP = Option(
    "startingOffsetsByTimestamp",
    TIMESTAMPS,
    "Start each partition at its first record of a time or later; every partition that is read "
    "must be given, unless startingOffsetsFallback is; wins over startingOffsets.",
    Scope.READ,
)
STARTING_OFFSETS = Option(
    "startingOffsets",
    START,
    "Where to start; a batch cannot start at latest, and committed is where the consumer group "
    "kafka.group.id stands, or with progressStore=zookeeper that store. A stream uses it for its "
    "first batch only: afterwards the checkpoint counts, and newPartitionOffsets says where "
    "partitions that are new start.",
    Scope.READ,
    default="earliest",
    stream_default="latest",
)
NO_MATCH_STRATEGY = Option(
    "startingOffsetsByTimestampStrategy",
    one_of("error", "latest"),
    "What to do with a partition that has no record of the starting time or later: fail, or "
    "start at its end.",
    Scope.READ,
    default="error",
)
STARTING_FALLBACK = Option(
    "startingOffsetsFallback",
    one_of("error", "earliest", "latest"),
    "Where partitions start of which startingOffsets or startingOffsetsByTimestamp says nothing: "
    "those left out of a JSON object, or without a committed offset. A batch cannot start at "
    "latest.",
    Scope.READ,
    default="error",
)
NEW_PARTITION_OFFSETS = Option(
    "newPartitionOffsets",
    one_of("earliest", "latest"),
    "Where partitions start that appear while a query runs or is stopped; latest is where they "
    "stand when the query sees them.",
    Scope.STREAM_READ,
    default="earliest",
    no_effect=Scope.BATCH_READ,
)
ENDING_TIMESTAMP = Option(
    "endingTimestamp",
    long_number(0),
    "End every partition before its first record of this time (ms since 1970 UTC) or later, at "
    "latest where there is none; wins over endingOffsetsByTimestamp and endingOffsets.",
    Scope.READ,
)
ENDING_OFFSETS_BY_TIMESTAMP = Option(
    "endingOffsetsByTimestamp",
    TIMESTAMPS,
    "End each partition before its first record of a time or later, at latest where there is "
    "none; wins over endingOffsets.",
    Scope.READ,
)
ENDING_OFFSETS = Option(
    "endingOffsets",
    OFFSETS,
    "Where to end, exclusive; it cannot be earliest. A stream reads no further: with availableNow "
    "it ends there, with other triggers it idles.",
    Scope.READ,
    default="latest",
)
FAIL_ON_DATA_LOSS = Option(
    "failOnDataLoss",
    BOOLEAN,
    "Fail when records that were to be read are gone; if false, log what is missing and go on.",
    Scope.READ,
    default="true",
)
POLL_TIMEOUT = Option(
    "kafkaConsumer.pollTimeoutMs",
    long_number(1),
    "How long a task waits for the next records of its partition before it fails; so long brokers "
    "must not have known a topic before it is called gone.",
    Scope.READ,
    default="120000",
)
FETCH_OFFSET_RETRIES = Option(
    "fetchOffset.numRetries",
    whole_number(0),
    "How often the driver asks for offsets before it gives up, at least once; and how often a task "
    "asks again where the log ends before its range does.",
    Scope.READ,
    default="3",
)
FETCH_OFFSET_RETRY_INTERVAL = Option(
    "fetchOffset.retryIntervalMs",
    long_number(0),
    "How long the driver waits before it asks for offsets again.",
    Scope.READ,
    default="1000",
)
MAX_OFFSETS_PER_TRIGGER = Option(
    "maxOffsetsPerTrigger",
    long_number(1),
    "At most so many offsets in a micro-batch, shared over the partitions in proportion.",
    Scope.STREAM_READ,
    no_effect=Scope.BATCH_READ,
)
MAX_OFFSETS_PER_PARTITION = Option(
    "maxOffsetsPerPartitionPerTrigger",
    long_number(1),
    "At most so many offsets of each partition in a micro-batch, so that a hot one cannot fill it.",
    Scope.STREAM_READ,
    no_effect=Scope.BATCH_READ,
)
MAX_BYTES_PER_TRIGGER = Option(
    "maxBytesPerTrigger",
    byte_size(1 << 20, 1 << 50),
    "About so many bytes in a micro-batch, as they lie compressed in the log; judged by looks "
    "at the records of up to 64 partitions. Needs the engine wire.",
    Scope.STREAM_READ,
    no_effect=Scope.BATCH_READ,
)
MIN_OFFSETS_PER_TRIGGER = Option(
    "minOffsetsPerTrigger",
    long_number(1),
    "Wait with a micro-batch until there are so many offsets, or maxTriggerDelay has passed.",
    Scope.STREAM_READ,
    no_effect=Scope.BATCH_READ,
)
MAX_TRIGGER_DELAY = Option(
    "maxTriggerDelay",
    DURATION,
    "The longest wait for minOffsetsPerTrigger.",
    Scope.STREAM_READ,
    default="15m",
    no_effect=Scope.BATCH_READ,
)
MIN_PARTITIONS = Option(
    "minPartitions",
    whole_number(1),
    "Divide the offsets into at least about so many tasks; otherwise one task reads a partition.",
    Scope.READ,
)
MAX_RECORDS_PER_PARTITION = Option(
    "maxRecordsPerPartition",
    long_number(1),
    "Give no task more offsets than this.",
    Scope.READ,
)
MAX_TIMESTAMP_DELAY = Option(
    "maxTimestampDelay",
    DURATION,
    "Your promise that no record is stamped earlier than one before it in its partition by more "
    "than this; then a filter on timestamp that Spark pushes down ends the read as well. Where the "
    "promise is broken, such late records are missing.",
    Scope.BATCH_READ,
)
GROUP_ID_PREFIX = Option(
    "groupIdPrefix",
    TEXT,
    "What the names of consumer groups begin with; without effect if kafka.group.id is given.",
    Scope.READ,
    default="spark-kafka-relation",
    stream_default="spark-kafka-source",
)
INCLUDE_HEADERS = Option(
    "includeHeaders",
    BOOLEAN,
    "Add the column headers; a write takes that column whenever it is there.",
    Scope.READ,
    default="false",
    no_effect=Scope.WRITE,
)
ENGINE = Option(
    "engine",
    one_of("auto", "wire", "librdkafka"),
    "What moves the records: wire, compiled and fast, or librdkafka, which works everywhere; auto "
    "takes wire wherever it can.",
    Scope.ALL,
    default="auto",
)
MAX_FETCH_MEMORY = Option(
    "maxFetchMemory",
    byte_size(1 << 20, 1 << 33),
    "How much of the records it reads a task holds at a time: fetched, decompressed and as Arrow "
    "columns. One compressed record batch must fit into it when it is decompressed.",
    Scope.READ,
    default="64m",
)
PROGRESS_STORE = Option(
    "progressStore",
    one_of("none", "consumerGroup", "zookeeper"),
    "Where, besides the checkpoint, a query's progress is kept: the consumer group "
    "kafka.group.id, where Kafka's own tools show its lag, or ZooKeeper. A batch records nothing; "
    "for it this only says what startingOffsets=committed means.",
    Scope.READ,
    default="none",
)
ZOOKEEPER_HOSTS = Option(
    "zookeeperHosts",
    HOSTS,
    "The ZooKeeper servers of progressStore=zookeeper.",
    Scope.READ,
)
ZOOKEEPER_ID = Option(
    "zookeeperId",
    NODE_NAME,
    "The name under which ZooKeeper has this query's progress; one query at a time can use it.",
    Scope.READ,
)
ZOOKEEPER_ROOT = Option(
    "zookeeperRoot",
    NODE_PATH,
    "The node below which ZooKeeper has a node for each zookeeperId, topic and partition.",
    Scope.READ,
    default="/pykafka",
)
ZOOKEEPER_SESSION_TIMEOUT = Option(
    "zookeeperSessionTimeoutMs",
    whole_number(1_000),
    "How long ZooKeeper waits for a silent process before another query may take its place.",
    Scope.READ,
    default="10000",
)
ZOOKEEPER_DIGEST = Option(
    "zookeeperDigest",
    CREDENTIALS,
    "Who to be to ZooKeeper, with its digest scheme.",
    Scope.READ,
    secret=True,
)
ZOOKEEPER_ACL: Option[Acl] = Option(
    "zookeeperAcl",
    one_of("open", "creator", "readable"),
    "Who may use the nodes that are made: everyone; only the user of zookeeperDigest (the default "
    "where that is given); or that user, and everyone may read.",
    Scope.READ,
)
SINK_TOPIC = Option(
    "topic",
    TOPIC,
    "The topic of every row; wins over the column topic.",
    Scope.WRITE,
)
DELIVERY_GUARANTEE: Option[DeliveryGuarantee] = Option(
    "deliveryGuarantee",
    one_of("at-least-once", "exactly-once"),
    "What a failure may do to rows: at-least-once loses none and may repeat some; exactly-once "
    "makes the rows of a batch write or of a micro-batch visible once, after all of them have been "
    "written, to readers of committed records.",
    Scope.WRITE,
    default="at-least-once",
)
TRANSACTIONAL_ID_PREFIX = Option(
    "transactionalIdPrefix",
    PREFIX,
    "What the names of the transactions begin with; one write or query at a time may use it. A "
    "stream keeps its ledger in the topic of this name with -ledger behind it. Without it a stream "
    "has pykafka- and its query's id, and each batch write pykafka- and a new name, which brokers "
    "remember for seven days.",
    Scope.WRITE,
)
LEDGER_REPLICATION_FACTOR = Option(
    "ledgerReplicationFactor",
    whole_number(1, 32_767),
    "How many replicas the ledger of an exactly-once stream gets when it is made: 3 if nothing is "
    "said, or as many as there are brokers where they are fewer.",
    Scope.STREAM_WRITE,
    no_effect=Scope.BATCH_WRITE,
)
LEDGER_MIN_INSYNC_REPLICAS = Option(
    "ledgerMinInsyncReplicas",
    whole_number(1, 32_767),
    "How many replicas of the ledger must have an entry before it counts (the topic's "
    "min.insync.replicas): one fewer than there are if nothing is said, but 2 at most.",
    Scope.STREAM_WRITE,
    no_effect=Scope.BATCH_WRITE,
)

#: The table itself, in the order of the documentation.
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
    MAX_TIMESTAMP_DELAY,
    GROUP_ID_PREFIX,
    INCLUDE_HEADERS,
    SINK_TOPIC,
    ENGINE,
    MAX_FETCH_MEMORY,
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

#: The same by the name as Spark hands it over.
BY_KEY: dict[str, Option[Any]] = {option.key: option for option in OPTIONS}

#: What Spark itself adds to the options of a source or a sink.
SPARK_OPTIONS = frozenset({"path", "checkpointlocation", "queryname"})
