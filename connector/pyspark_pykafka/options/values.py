"""
Parsed options: frozen values that planning, reading and writing share.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from pyspark_pykafka.options.encoding_values import AS_BYTES, EncodingOptions
from pyspark_pykafka.options.registry_values import BY_TOPIC, RegistryOptions, SubjectOptions
from pyspark_pykafka.retry import RetryPolicy

if TYPE_CHECKING:
    from pyspark_pykafka.offsets import TopicPartition
    from pyspark_pykafka.settings import KafkaSettings

NoMatch = Literal["error", "latest"]
IsolationLevel = Literal["read_committed", "read_uncommitted"]
DeliveryGuarantee = Literal["at-least-once", "exactly-once"]
Acl = Literal["open", "creator", "readable"]
ValueFormat = Literal["raw", "text", "json", "avro", "protobuf"]
OnBadRecord = Literal["fail", "null", "rescue", "deadletter"]


@dataclass(frozen=True, slots=True)
class Assign:
    """
    Read exactly these partitions.
    """

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Subscribe:
    """
    Read every partition of these topics, including partitions added later.
    """

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    """
    Read every topic for whose name ``re.search(pattern, topic)`` has a match.

    Unanchored like ``find`` in the JVM connector: anchor with ``^`` and ``$`` to match whole names.
    """

    pattern: str


Strategy = Assign | Subscribe | SubscribePattern


@dataclass(frozen=True, slots=True)
class Earliest:
    """
    The first available offset of every partition.
    """


@dataclass(frozen=True, slots=True)
class Latest:
    """
    The end of every partition, after its last record.
    """


@dataclass(frozen=True, slots=True)
class AtTime:
    """
    The first record at or after a time in ms since 1970 UTC, or the end if there is none.
    """

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class TimeAgo:
    """
    The first record of the last ``milliseconds`` before the offsets are resolved, or the end.
    """

    milliseconds: int


@dataclass(frozen=True, slots=True)
class LastOffsets:
    """
    The last ``count`` offsets of a partition, or all that the log holds if there are fewer.
    """

    count: int


#: A position in a partition that is resolved to an offset when a read begins.
Position = AtTime | TimeAgo | LastOffsets


@dataclass(frozen=True, slots=True)
class SpecificOffsets:
    """
    One offset per partition, sorted by partition; EARLIEST (-2) and LATEST (-1) are allowed.

    ``topics`` holds (topic, EARLIEST or LATEST) for all partitions of a topic. A topic is in either
    ``offsets`` or ``topics``. In place of an offset both may hold a :data:`Position`.
    """

    offsets: tuple[tuple[TopicPartition, int | Position], ...]
    topics: tuple[tuple[str, int | Position], ...] = ()


@dataclass(frozen=True, slots=True)
class Committed:
    """
    The committed offsets of the consumer group ``kafka.group.id``, or those in ZooKeeper.
    """


@dataclass(frozen=True, slots=True)
class SpecificTimestamps:
    """
    Per partition the first record at or after a timestamp (ms since 1970 UTC), sorted.

    ``strategy`` applies if no such record exists; for an end it is always ``latest``.
    """

    timestamps: tuple[tuple[TopicPartition, int], ...]
    strategy: NoMatch


@dataclass(frozen=True, slots=True)
class GlobalTimestamp:
    """
    In every partition the first record at or after one timestamp in ms since 1970 UTC.

    ``strategy`` applies if no such record exists; for an end it is always ``latest``.
    """

    timestamp_ms: int
    strategy: NoMatch


OffsetLimit = (
    Committed
    | Earliest
    | Latest
    | SpecificOffsets
    | SpecificTimestamps
    | GlobalTimestamp
    | AtTime
    | TimeAgo
    | LastOffsets
)


@dataclass(frozen=True, slots=True)
class NoStore:
    """
    Progress is recorded in Spark's checkpoint only.
    """

    @property
    def name(self) -> str:
        """
        The name of the store in the checkpoint.
        """
        return ""


@dataclass(frozen=True, slots=True)
class ConsumerGroup:
    """
    Progress is committed to a consumer group.
    """

    group_id: str

    @property
    def name(self) -> str:
        """
        The name of the store in the checkpoint.
        """
        return f"consumerGroup {self.group_id}"


@dataclass(frozen=True, slots=True)
class ZooKeeperNodes:
    """
    Progress is recorded in ZooKeeper, below ``root``/``id``; ``digest`` is (user, password).
    """

    hosts: str
    root: str
    id: str
    session_timeout_ms: int
    digest: tuple[str, str] | None = field(repr=False)
    acl: Acl

    @property
    def name(self) -> str:
        """
        The name of the store in the checkpoint.
        """
        return f"zookeeper {self.root}/{self.id}"


StoreOptions = NoStore | ConsumerGroup | ZooKeeperNodes


@dataclass(frozen=True, slots=True)
class RackVariable:
    """
    An environment variable of the process that reads, whose value is its rack.
    """

    name: str


@dataclass(frozen=True, slots=True)
class RackProvider:
    """
    An entry point whose function returns the rack of the process that calls it, or None.
    """

    name: str


#: Where a process finds its own rack.
RackSource = RackVariable | RackProvider


@dataclass(frozen=True, slots=True)
class FormatOptions:
    """
    How keys and values are decoded.

    The schemas are the DDL of a type for JSON, the text of an Avro schema for Avro, or None. With a
    registry that of Avro is the reader's schema; the subjects say where it is if it is None. For
    Protobuf they are what the user gave, or what it was resolved to, with the message's full name.
    """

    value_format: ValueFormat = "raw"
    key_format: ValueFormat = "raw"
    value_schema: str | None = None
    key_schema: str | None = None
    flatten: bool = False
    on_bad_record: OnBadRecord = "fail"
    max_bad_records: int | None = None
    dead_letter_topic: str | None = None
    registry: RegistryOptions | None = None
    value_subject: SubjectOptions = BY_TOPIC
    key_subject: SubjectOptions = BY_TOPIC
    value_message: str | None = None
    key_message: str | None = None

    @property
    def by_column(self) -> dict[str, ValueFormat]:
        """
        The formats by the record's column.
        """
        return {"key": self.key_format, "value": self.value_format}

    @property
    def schemas(self) -> dict[str, str | None]:
        """
        The schemas by the record's column.
        """
        return {"key": self.key_schema, "value": self.value_schema}

    @property
    def messages(self) -> dict[str, str | None]:
        """
        The names of Protobuf messages by the record's column.
        """
        return {"key": self.key_message, "value": self.value_message}

    @property
    def subjects(self) -> dict[str, SubjectOptions]:
        """
        Where the schemas are in the registry, by the record's column.
        """
        return {"key": self.key_subject, "value": self.value_subject}


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """
    The validated options of a read. Fields have the names of the options, in snake case.

    ``starting_offsets_fallback`` is EARLIEST, LATEST or None (an error) for partitions that
    ``starting_offsets`` does not cover; ``new_partition_offsets`` is EARLIEST or LATEST.
    ``rack_source`` is of the options ``clientRackEnv`` and ``clientRackProvider``.
    """

    strategy: Strategy
    starting_offsets: OffsetLimit
    starting_offsets_fallback: int | None
    new_partition_offsets: int
    ending_offsets: OffsetLimit
    fail_on_data_loss: bool
    poll_timeout_ms: int
    fetch_offset_num_retries: int
    fetch_offset_retry_interval_ms: int
    max_offsets_per_trigger: int | None
    max_offsets_per_partition_per_trigger: int | None
    max_bytes_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    max_timestamp_delay_ms: int | None
    min_partitions: int | None
    max_records_per_partition: int | None
    group_id_prefix: str
    include_headers: bool
    kafka: KafkaSettings
    engine: str
    max_fetch_memory: int
    progress_store: StoreOptions
    formats: FormatOptions = FormatOptions()
    rack_source: RackSource | None = None

    @property
    def fetch_offset_retry(self) -> RetryPolicy:
        """
        How often the driver requests offsets; at least once.
        """
        attempts = max(self.fetch_offset_num_retries, 1)
        return RetryPolicy(attempts, self.fetch_offset_retry_interval_ms / 1000)

    @property
    def isolation_level(self) -> IsolationLevel:
        """
        The isolation level; the default is the Java client's, not librdkafka's.
        """
        level = self.kafka.get("isolation.level", "read_uncommitted").strip().lower()
        return "read_committed" if level == "read_committed" else "read_uncommitted"


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """
    The validated options of a write; ``topic`` overrides the column of that name.
    """

    engine: str
    topic: str | None
    include_headers: bool
    kafka: KafkaSettings
    checkpoint_location: str | None
    query_name: str | None
    delivery_guarantee: DeliveryGuarantee
    transactional_id_prefix: str | None
    ledger_replication_factor: int | None = None
    ledger_min_insync_replicas: int | None = None
    encoding: EncodingOptions = AS_BYTES
