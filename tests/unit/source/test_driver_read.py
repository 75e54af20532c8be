"""
Which micro-batches the driver reads itself, and when it leaves them to tasks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.support import fetching

from pyspark_pykafka.errors import BrokerUnavailableError, DataLossError
from pyspark_pykafka.offsets import OffsetRange, TopicPartition
from pyspark_pykafka.source.driver_read import (
    BoundedDriverReader,
    DisabledDriverReader,
    DriverReader,
    DriverReadPolicy,
    fail_fast_settings,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_pykafka.errors import PykafkaError

POLICY = DriverReadPolicy(
    10, max_bytes=200, max_ranges=3, max_seconds=1.0, first_max_seconds=9.0, pause_seconds=30.0
)


def ranges(*sizes: int) -> list[OffsetRange]:
    """
    Return one range of each size, each in a partition of its own.
    """
    return [OffsetRange(TopicPartition("t", p), 5, 5 + size) for p, size in enumerate(sizes)]


@dataclass
class Log:
    """
    A log that returns eight bytes per offset after some seconds, or raises an error.
    """

    seconds: float = 0.0
    batch_seconds: float = 0.0
    error: PykafkaError | None = None
    batch: int = 100
    clock: float = 100.0
    read: list[OffsetRange] = field(default_factory=list)
    open: int = 0

    def __call__(self, r: OffsetRange) -> Iterator[pa.RecordBatch]:
        self.read.append(r)
        self.clock += self.seconds
        self.open += 1
        try:
            if self.error:
                raise self.error
            for start in range(r.start, r.end, self.batch):
                self.clock += self.batch_seconds
                offsets = pa.array(range(start, min(start + self.batch, r.end)), pa.int64())
                yield pa.record_batch([offsets], ["offset"])
        finally:
            self.open -= 1

    def driver_reader(self) -> BoundedDriverReader:
        return BoundedDriverReader(self, POLICY, lambda: self.clock)


def offsets(batches: list[pa.RecordBatch] | None) -> list[int]:
    """
    Return the offsets in the order of the batches.
    """
    assert batches is not None
    return [offset for batch in batches for offset in batch["offset"].to_pylist()]


def test_records_come_in_the_order_of_the_ranges() -> None:
    """
    All batches of all ranges are returned, one range after the other.
    """
    batches = Log(batch=2).driver_reader().read(ranges(3, 2))

    assert offsets(batches) == [5, 6, 7, 5, 6]


def test_ranges_without_records_need_no_task() -> None:
    """
    The driver reads a batch of transaction markers alone, and returns an empty list.
    """
    driver_reader = BoundedDriverReader(lambda _: iter(()), POLICY)

    assert driver_reader.read(ranges(3)) == []


@pytest.mark.parametrize(
    "sizes", [(), (11,), (6, 5), (1, 1, 1, 1)], ids=["none", "long", "long in total", "many"]
)
def test_large_batches_are_left_to_tasks(sizes: tuple[int, ...]) -> None:
    """
    A batch with too many offsets or ranges is left to tasks without a request to a broker.
    """
    log = Log()

    assert log.driver_reader().read(ranges(*sizes)) is None
    assert log.read == []


def test_limits_are_inclusive() -> None:
    """
    A batch of exactly the maximum sizes is read by the driver.
    """
    assert offsets(Log().driver_reader().read(ranges(4, 4, 2)))


def test_too_many_bytes_are_left_to_tasks() -> None:
    """
    A batch that turns out too large is left to tasks; the read ends and frees its connection.
    """
    log = Log(batch=1)
    driver_reader = BoundedDriverReader(log, DriverReadPolicy(max_bytes=30))

    assert driver_reader.read(ranges(3, 10, 10)) is None
    assert (len(log.read), log.open) == (2, 0)


def test_slow_read_is_given_up() -> None:
    """
    No further range is read after the policy's time limit.
    """
    log = Log()
    driver_reader = log.driver_reader()
    driver_reader.read(ranges(1))
    log.seconds = 0.6

    assert driver_reader.read(ranges(1, 1, 1)) is None
    assert len(log.read) == 3


def test_slow_range_is_given_up() -> None:
    """
    No further batch of a range is read after the policy's time limit; a complete range is kept.
    """
    log = Log(batch=1)
    driver_reader = log.driver_reader()
    driver_reader.read(ranges(1))
    log.batch_seconds = 0.6

    assert offsets(driver_reader.read(ranges(2))) == [5, 6]
    assert driver_reader.read(ranges(3)) is None
    assert log.clock == pytest.approx(102.4)
    assert log.open == 0


def test_driver_does_not_wait_for_a_quota() -> None:
    """
    The driver waits for a throttle time of at most 2 s, or of less if the settings say so.
    """
    usual = fetching.settings("b:1", "wire")
    hurried = fetching.settings("b:1", "wire", max_throttle_seconds=0.5)

    assert fail_fast_settings(usual).max_throttle_seconds <= 2
    assert fail_fast_settings(hurried).max_throttle_seconds == 0.5


def test_first_read_may_take_longer() -> None:
    """
    The first read has more time, since it connects.
    """
    assert offsets(Log(seconds=2.9).driver_reader().read(ranges(1, 1, 1))) == [5, 5, 5]
    assert Log(seconds=4.6).driver_reader().read(ranges(1, 1, 1)) is None


@pytest.mark.parametrize("error", [BrokerUnavailableError("down"), DataLossError("LOST", "gone")])
def test_errors_are_left_to_tasks(error: PykafkaError) -> None:
    """
    After an error a task reads the range, and raises the error if it persists.
    """
    assert Log(error=error).driver_reader().read(ranges(1)) is None


def test_driver_read_pauses_after_a_failure() -> None:
    """
    Tasks read the batches within the pause; the driver reads the first batch after it.
    """
    log = Log(error=BrokerUnavailableError("down"))
    driver_reader = log.driver_reader()
    driver_reader.read(ranges(1))
    log.error = None

    log.clock += 29
    assert driver_reader.read(ranges(1)) is None
    log.clock += 2
    assert offsets(driver_reader.read(ranges(1))) == [5]


def test_without_driver_read_tasks_read_everything() -> None:
    """
    DisabledDriverReader leaves even the smallest batch to tasks.
    """
    driver_reader: DriverReader = DisabledDriverReader()
    smallest = ranges(1)

    assert not driver_reader.admits(smallest)
    assert driver_reader.read(smallest) is None
