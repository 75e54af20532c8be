"""
A limit in bytes on a micro-batch is met for logs with batches and records of any size.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from tests.support.record_batches import HEADER_SIZE, Batch, Record

from pyspark_pykafka.engines.wire.consumer.density_samples import measure_batches
from pyspark_pykafka.offsets import TopicPartition
from pyspark_pykafka.source.admission import AdmissionPolicy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_pykafka.offsets import Offsets

TP = TopicPartition("t", 0)
FETCH_BYTES = 32 * 1024
LIMIT = 1 << 20


@dataclass
class Log:
    """
    One partition with batches of (number of records, bytes per record).
    """

    batches: list[tuple[int, int]]
    samples: int = 0
    _parts: list[tuple[int, bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        base = 0
        for count, size in self.batches:
            record = Record(base + count - 1, value=b"x" * (count * size))
            self._parts.append((base, Batch(base, base + count - 1, (record,)).encode()))
            base += count
        self.end = base

    def fetch(self, position: int) -> memoryview:
        """
        Return a broker's response: up to FETCH_BYTES of the log, from the batch that contains the
        position on; that first batch is always whole.
        """
        response = b""
        for (base, part), (count, _) in zip(self._parts, self.batches, strict=True):
            if base + count > position and len(response) < FETCH_BYTES:
                response = response + part if not response else (response + part)[:FETCH_BYTES]
        return memoryview(response)

    def sizes(self, positions: Offsets) -> dict[TopicPartition, float]:
        self.samples += 1
        size, offsets = measure_batches(self.fetch(positions[TP]), positions[TP])
        return {TP: size / offsets} if offsets else {}

    def apply_limits(self, limit: int) -> int:
        """
        Return the end of a micro-batch that starts at the log start.
        """
        policy = AdmissionPolicy(max_bytes=limit)
        return policy.apply_limits({TP: 0}, {TP: self.end}, self.sizes)[TP]

    def size(self, end: int) -> float:
        """
        Return the number of bytes before an offset. The batch that has the offset counts in part.
        """
        return sum(
            len(part) * min(max(end - base, 0), count) / count
            for (base, part), (count, _) in zip(self._parts, self.batches, strict=True)
        )


def equal_batches(count: int, size: int, batches: int) -> list[tuple[int, int]]:
    return [(count, size)] * batches


def random_batches(seed: int) -> Iterator[tuple[int, int]]:
    chance = random.Random(seed)
    for _ in range(400):
        yield chance.randint(1, 60), chance.randint(300, 500)


@pytest.mark.parametrize(
    "batches",
    [
        pytest.param(equal_batches(20, 1000, 200), id="batches of 20 kB"),
        pytest.param([(1, 10), *equal_batches(20, 1000, 200)], id="a small batch first"),
        pytest.param([(1, 10), *equal_batches(500, 1000, 10)], id="a small batch, then large ones"),
        pytest.param([(1, 100_000), *equal_batches(100, 100, 400)], id="a large record first"),
        pytest.param(equal_batches(1, 100, 30_000), id="one record per batch"),
        pytest.param(equal_batches(1, 300_000, 30), id="each larger than a fetch"),
        pytest.param(
            equal_batches(100, 20, 200) + equal_batches(10, 1000, 300), id="small, then large"
        ),
        pytest.param(
            equal_batches(10, 1000, 60) + equal_batches(100, 20, 2000), id="large, then small"
        ),
        pytest.param([(n + 1, 40) for n in range(300)], id="growing"),
        *(pytest.param(list(random_batches(seed)), id=f"random {seed}") for seed in range(5)),
    ],
)
def test_limit_is_met_for_any_batches(batches: list[tuple[int, int]]) -> None:
    """
    The admitted bytes differ from the limit by at most a tenth, or by one record if that is more;
    at most 32 samples are taken.
    """
    log = Log(batches)
    end = log.apply_limits(LIMIT)

    largest_record = max(size for _, size in batches)
    assert log.size(end) == pytest.approx(LIMIT, rel=0.1, abs=largest_record)
    assert log.samples <= 32


def test_uniform_log_needs_few_samples() -> None:
    """
    A log with records of one size is sampled eight times.
    """
    log = Log(equal_batches(20, 1000, 200))
    log.apply_limits(LIMIT)

    assert log.samples == 8


@pytest.mark.parametrize(("batches", "samples"), [(3, 1), (100, 2), (170, 8)])
def test_small_backlog_needs_fewer_samples(batches: int, samples: int) -> None:
    """
    A backlog within one sample is sampled once, a backlog far below the limit twice, and a backlog
    near the limit eight times.
    """
    log = Log(equal_batches(10, 500, batches))
    assert log.apply_limits(LIMIT) == log.end
    assert log.samples == samples


def test_everything_is_admitted_if_it_fits() -> None:
    """
    A limit larger than the log admits everything; a limit of half its size admits half.
    """
    log = Log([*equal_batches(10, 10, 10), *equal_batches(10, 1000, 200)])
    total = int(log.size(log.end))

    assert log.apply_limits(2 * total) == log.end
    assert log.size(log.apply_limits(total // 2)) == pytest.approx(total // 2, rel=0.1)


def test_bytes_and_offsets_of_a_sample_match() -> None:
    """
    A batch that is cut off counts with all its bytes and offsets; one whose header is cut off does
    not count.
    """
    first = Batch(10, 10, (Record(10, value=b"x" * 100),)).encode()
    second = Batch(11, 60, (Record(11, value=b"y" * 5000),)).encode()

    expected = (len(first) + len(second), 51)
    assert measure_batches(memoryview(first + second), 10) == expected
    assert measure_batches(memoryview((first + second)[: len(first) + HEADER_SIZE]), 10) == expected
    assert measure_batches(memoryview((first + second)[: len(first) + 20]), 10) == (len(first), 1)
    # Offsets that compaction removed take no bytes, but they count.
    assert measure_batches(memoryview(first), 5) == (len(first), 6)
    assert measure_batches(memoryview(b""), 5) == (0, 0)
