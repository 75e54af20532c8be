"""
The options of reads and writes, drawn from the seed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.workloads.topics import INPUT, OUTPUT

if TYPE_CHECKING:
    from tests.simulation.workloads.history import History


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
