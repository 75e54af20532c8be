"""
The contenders and cases of the benchmark; this module needs neither a broker nor Spark.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The default columns of both connectors; every read selects all of them.
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")

#: Number of records for each value size, chosen so that the JVM connector reads for two to four
#: seconds on two cores.
RECORDS = {100: 5_000_000, 1024: 1_000_000, 10_240: 150_000}
QUICK_RECORDS = {100: 3_000_000, 1024: 600_000, 10_240: 100_000}
#: For other sizes: the same number of bytes, but not too many records.
BYTES_PER_READ = 1_000_000_000
MAX_RECORDS = 5_000_000

DEFAULT_PARTITIONS = 2

CEILING_FORMAT = "bench_ceiling"
FETCH_ONLY_FORMAT = "bench_fetch_only"


@dataclass(frozen=True, slots=True)
class Contender:
    """
    One way to read or write: its name in the results, and its Spark format and options.
    """

    name: str
    format: str
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_ceiling(self) -> bool:
        """
        Whether it is the ceiling: a Python data source that generates its records, or drops them.
        """
        return self.format == CEILING_FORMAT

    @property
    def has_other_records(self) -> bool:
        """
        Whether the records that it passes to Spark are not those of the topic.
        """
        return self.format in {CEILING_FORMAT, FETCH_ONLY_FORMAT}


JVM = Contender("jvm", "kafka")
WIRE = Contender("wire", "pykafka", {"engine": "wire"})
LIBRDKAFKA = Contender("librdkafka", "pykafka", {"engine": "librdkafka"})
CEILING = Contender("ceiling", CEILING_FORMAT)
FETCH_ONLY = Contender("fetch-only", FETCH_ONLY_FORMAT)
PYKAFKA = Contender("pykafka", "pykafka")

READERS = {contender.name: contender for contender in (JVM, WIRE, LIBRDKAFKA, CEILING, FETCH_ONLY)}
DEFAULT_READERS = (JVM.name, WIRE.name, LIBRDKAFKA.name, CEILING.name)

LZ4 = {"kafka.compression.type": "lz4"}
#: Settings that make a JVM sink fast: large batches, time to fill them, several in a request.
TUNED = {
    "kafka.batch.size": str(1024 * 1024),
    "kafka.buffer.memory": str(128 * 1024 * 1024),
    "kafka.linger.ms": "50",
    "kafka.max.request.size": str(8 * 1024 * 1024),
}
JVM_TUNED = Contender("jvm-tuned", "kafka", TUNED)
JVM_TUNED_LZ4 = Contender("jvm-tuned-lz4", "kafka", {**TUNED, **LZ4})
EXACTLY_ONCE = Contender(
    "exactly-once", "pykafka", {"engine": "wire", "deliveryGuarantee": "exactly-once"}
)
#: Only generates the rows; the sink drops them.
SOURCE = Contender("source", "noop")

WRITERS = {
    contender.name: contender
    for contender in (
        JVM,
        JVM_TUNED,
        JVM_TUNED_LZ4,
        WIRE,
        Contender("wire-lz4", "pykafka", {"engine": "wire", **LZ4}),
        EXACTLY_ONCE,
        LIBRDKAFKA,
        CEILING,
        SOURCE,
    )
}


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """
    The content of a topic: ``records`` values of ``size`` bytes, as text or in ``format``.
    """

    size: int
    codec: str
    partitions: int
    records: int
    format: str = ""

    @property
    def name(self) -> str:
        """
        The topic's name.
        """
        name = f"bench-{self.size}-{self.codec}-{self.partitions}"
        return f"{name}-{self.format}" if self.format else name


@dataclass(frozen=True, slots=True)
class Case:
    """
    One topic in one mode: read as `batch` or `stream` (availableNow), or the target of a `write`.
    """

    mode: str
    topic: TopicSpec

    @property
    def name(self) -> str:
        """
        The name, such as `batch-100B-lz4-8p`; the codec is left out if there is none, and the
        partitions if there are two (the default).
        """
        parts = [self.mode, size_text(self.topic.size)]
        if self.topic.codec != "none":
            parts.append(self.topic.codec)
        if self.topic.partitions != DEFAULT_PARTITIONS:
            parts.append(f"{self.topic.partitions}p")
        return "-".join(parts)


def size_text(size: int) -> str:
    """
    Return a size such as `100B` or `1KB`.
    """
    return f"{size // 1024}KB" if size >= 1024 and size % 1024 == 0 else f"{size}B"


def records_of(size: int, *, quick: bool = False) -> int:
    """
    Return the number of records for one read.
    """
    counts = QUICK_RECORDS if quick else RECORDS
    return counts.get(size) or min(MAX_RECORDS, max(1, BYTES_PER_READ // size))


def topics(
    sizes: tuple[int, ...],
    codecs: tuple[str, ...],
    partitions: tuple[int, ...],
    records: Mapping[int, int],
) -> list[TopicSpec]:
    """
    Return all combinations in the order of measurement.
    """
    return [
        TopicSpec(size, codec, count, records[size])
        for size, codec, count in product(sizes, codecs, partitions)
    ]


def shuffled_rounds(names: list[str], rounds: int, seed: str) -> list[list[str]]:
    """
    Return the order of each round, shuffled so that a temporary disturbance affects all contenders.
    """
    generator = random.Random(seed)  # noqa: S311 (not a secret)
    return [generator.sample(names, len(names)) for _ in range(rounds)]
