"""
Parsed options: frozen values that planning, reading and writing share.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pyspark_pykafka.options.encoding_values import UNENCODED, EncodingOptions
from pyspark_pykafka.options.format_values import UNDECODED, FormatOptions
from pyspark_pykafka.retry import RetryPolicy

if TYPE_CHECKING:
    from pyspark_pykafka.offsets import TopicPartition
    from pyspark_pykafka.options.offset_values import OffsetLimit
    from pyspark_pykafka.options.store_values import StoreOptions
    from pyspark_pykafka.settings import KafkaSettings

IsolationLevel = Literal["read_committed", "read_uncommitted"]
DeliveryGuarantee = Literal["at-least-once", "exactly-once"]


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
    Read every topic in whose name ``re.search(pattern, topic)`` finds a match.

    Unanchored like ``find`` in the JVM connector: anchor with ``^`` and ``$`` to match whole names.
    """

    pattern: str


Strategy = Assign | Subscribe | SubscribePattern


@dataclass(frozen=True, slots=True)
class RackVariable:
    """
    An environment variable whose value is the rack of the process that reads.
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
class SourceOptions:
    """
    The validated options of a read. Most fields have the names of the options, in snake case.

    ``starting_offsets_fallback`` is EARLIEST, LATEST or None (an error) for partitions that
    ``starting_offsets`` does not cover; ``new_partition_offsets`` is EARLIEST or LATEST.
    ``rack_source`` is set by ``clientRackEnv`` or ``clientRackProvider``.
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
    push_down_filters: bool
    max_timestamp_delay_ms: int | None
    min_partitions: int | None
    max_records_per_partition: int | None
    latest_per_key: bool
    group_id_prefix: str
    include_headers: bool
    kafka: KafkaSettings
    engine: str
    max_fetch_memory: int
    progress_store: StoreOptions
    formats: FormatOptions = UNDECODED
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

        With ``latest_per_key`` it is ``read_committed``: an aborted record would hide a committed
        record with the same key.
        """
        default = "read_committed" if self.latest_per_key else "read_uncommitted"
        level = self.kafka.get("isolation.level", default).strip().lower()
        return "read_committed" if level == "read_committed" else "read_uncommitted"


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """
    The validated options of a write; ``topic`` overrides the column of that name.
    """

    engine: str
    topic: str | None
    kafka: KafkaSettings
    delivery_guarantee: DeliveryGuarantee
    transactional_id_prefix: str | None
    ledger_replication_factor: int | None = None
    ledger_min_insync_replicas: int | None = None
    encoding: EncodingOptions = UNENCODED
