"""
The options of reads and writes, drawn from the seed.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from tests.simulation.kafka.releases import KAFKA_2_7, KAFKA_3_0, NEWEST, Release
from tests.simulation.workloads.topics import INPUT, OUTPUT, PARTITIONS, RECREATION

if TYPE_CHECKING:
    from tests.simulation.workloads.history import History

#: The isolation levels of reads.
COMMITTED_LEVEL, UNCOMMITTED_LEVEL = "read_committed", "read_uncommitted"


def draw_release(seed: int) -> Release:
    """
    Return the release of a history's brokers, in three of four histories the newest.

    The release is not drawn from the history's own random numbers, so histories with the newest
    release stay the same.
    """
    draw = Random(f"release {seed}")
    return draw.choices((NEWEST, KAFKA_3_0, KAFKA_2_7), (6, 1, 1))[0]


def draw_batch_change(seed: int) -> str:
    """
    Return how the topic of batch reads changes, "" for not at all.

    Topics without ids are not recreated: their records would be mixed.
    """
    draw, release = Random(f"batch change {seed}"), draw_release(seed)
    weights = {NEWEST: (6, 1, 1), KAFKA_3_0: (2, 1, 3), KAFKA_2_7: (6, 2, 0)}[release]
    return draw.choices(("", PARTITIONS, RECREATION), weights)[0]


def draw_ignorance(seed: int) -> bool:
    """
    Return whether brokers of batch reads know no topics for a moment while another broker is cut
    off.
    """
    return Random(f"ignorance {seed}").random() < 0.25


def draw_timeouts(seed: int) -> bool:
    """
    Return whether transactions time out just before they are committed.
    """
    return Random(f"timeouts {seed}").random() < 0.1


def draw_lost_commits(seed: int) -> bool:
    """
    Return whether drivers lose some requests of a commit, and the commit fails before they can
    repeat the requests.
    """
    return Random(f"lost commits {seed}").random() < 0.1


def draw_refusals(seed: int) -> bool:
    """
    Return whether leaders reject single batches, and accept the batches behind them.
    """
    return Random(f"refused writes {seed}").random() < 0.1


def read_options(history: History, isolation: str) -> dict[str, str]:
    draw = history.draw
    options = {
        "kafka.bootstrap.servers": history.bootstrap,
        "subscribe": INPUT,
        "startingOffsets": "earliest",
        "kafka.isolation.level": isolation,
        "kafkaConsumer.pollTimeoutMs": draw.choice(("5000", "30000", "120000")),
        "failOnDataLoss": draw.choice(("true", "false")),
    }
    for name, values in {
        "maxOffsetsPerTrigger": ("20", "200"),
        "minPartitions": ("4", "9"),
        "kafka.request.timeout.ms": ("3000", "30000"),
        "kafka.fetch.max.bytes": ("2000",),
        "kafka.max.partition.fetch.bytes": ("1000",),
    }.items():
        if draw.random() < 0.3:
            options[name] = draw.choice(values)
    return options


def write_options(history: History, guarantee: str) -> dict[str, str]:
    draw = history.draw
    options = {
        "kafka.bootstrap.servers": history.bootstrap,
        "topic": OUTPUT,
        "deliveryGuarantee": guarantee,
    }
    if guarantee == "exactly-once":
        options["transactionalIdPrefix"] = "sim"
        options["kafka.transaction.timeout.ms"] = draw.choice(("60000", "900000"))
    if draw.random() < 0.5:
        options["kafka.batch.size"] = draw.choice(("100", "200", "1000"))
    if draw.random() < 0.4:
        options["kafka.request.timeout.ms"] = "3000"
        options["kafka.delivery.timeout.ms"] = draw.choice(("8000", "30000"))
        options["kafka.max.block.ms"] = draw.choice(("8000", "20000"))
    return options
