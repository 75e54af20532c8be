"""
Says what is compared with what, on which records; nothing here touches a broker or Spark.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The columns that both connectors give by default; every read takes all of them.
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")

#: So many records that the JVM connector takes two to four seconds for one read on two cores.
RECORDS = {100: 5_000_000, 1024: 1_000_000, 10_240: 150_000}
QUICK_RECORDS = {100: 3_000_000, 1024: 600_000, 10_240: 100_000}
#: For other sizes: as many bytes, within what keeps a read from being all start-up or all night.
BYTES_OF_A_READ = 1_000_000_000
MOST_RECORDS = 5_000_000

USUAL_PARTITIONS = 2

CEILING_FORMAT = "bench_ceiling"


@dataclass(frozen=True, slots=True)
class Contender:
    """
    One way to read or to write: its name in the results, and what Spark is told.
    """

    name: str
    format: str
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_ceiling(self) -> bool:
        """
        Tell whether it does without Kafka: it makes its records up, or drops them.
        """
        return self.format == CEILING_FORMAT


JVM = Contender("jvm", "kafka")
WIRE = Contender("wire", "pykafka", {"engine": "wire"})
LIBRDKAFKA = Contender("librdkafka", "pykafka", {"engine": "librdkafka"})
CEILING = Contender("ceiling", CEILING_FORMAT)
PYKAFKA = Contender("pykafka", "pykafka")

READERS = {one.name: one for one in (JVM, WIRE, LIBRDKAFKA, CEILING)}

LZ4 = {"kafka.compression.type": "lz4"}
#: What makes a JVM sink fast: large batches, time to fill them, and requests that hold several.
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
#: The rows alone, which go nowhere.
SOURCE = Contender("source", "noop")

WRITERS = {
    one.name: one
    for one in (
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
    What a topic holds: ``records`` values of ``size`` bytes.
    """

    size: int
    codec: str
    partitions: int
    records: int

    @property
    def name(self) -> str:
        """
        Return the topic's name.
        """
        return f"bench-{self.size}-{self.codec}-{self.partitions}"


@dataclass(frozen=True, slots=True)
class Case:
    """
    One topic in one mode: read in a `batch` or a `stream` (availableNow), or the goal of a `write`.
    """

    mode: str
    topic: TopicSpec

    @property
    def name(self) -> str:
        """
        Return `batch-100B-lz4-8p`.

        No compression goes without saying, and so do two partitions.
        """
        parts = [self.mode, size_text(self.topic.size)]
        if self.topic.codec != "none":
            parts.append(self.topic.codec)
        if self.topic.partitions != USUAL_PARTITIONS:
            parts.append(f"{self.topic.partitions}p")
        return "-".join(parts)


def size_text(size: int) -> str:
    """
    Return `100B`, `1KB`.
    """
    return f"{size // 1024}KB" if size >= 1024 and size % 1024 == 0 else f"{size}B"


def records_of(size: int, *, quick: bool = False) -> int:
    """
    Return how many records of a size make one read.
    """
    known = QUICK_RECORDS if quick else RECORDS
    return known.get(size) or min(MOST_RECORDS, max(1, BYTES_OF_A_READ // size))


def topics(
    sizes: tuple[int, ...],
    codecs: tuple[str, ...],
    partitions: tuple[int, ...],
    records: Mapping[int, int],
) -> list[TopicSpec]:
    """
    Return every combination, in the order in which they are measured.
    """
    return [
        TopicSpec(size, codec, count, records[size])
        for size, codec, count in product(sizes, codecs, partitions)
    ]


def shuffled_rounds(names: list[str], rounds: int, seed: str) -> list[list[str]]:
    """
    Return each round's order; whatever disturbs the machine for a while then meets everyone.
    """
    chance = random.Random(seed)  # noqa: S311 (an order, not a secret)
    return [chance.sample(names, len(names)) for _ in range(rounds)]
