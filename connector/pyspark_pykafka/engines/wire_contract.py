"""
The interfaces of the wire engine's modules that need compiled code.

An installation may lack the compiled code, so these modules are imported by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    import pyarrow as pa

    from pyspark_pykafka.engines.byte_density import DensitySamples
    from pyspark_pykafka.engines.contract import FetchSettings
    from pyspark_pykafka.engines.transaction_contract import TaskWriteResult, TransactionSpec
    from pyspark_pykafka.engines.wire.consumer import density_samples, range_reader, ranges_reader
    from pyspark_pykafka.engines.wire.producer import producer
    from pyspark_pykafka.engines.wire.transactions.transactions import Transactions
    from pyspark_pykafka.offsets import OffsetRange, Offsets
    from pyspark_pykafka.settings import KafkaSettings


class FetchingEngine(Protocol):
    """
    The module of the wire engine that reads ranges.
    """

    @property
    def OldFormatError(self) -> type[range_reader.OldFormatError]:  # noqa: N802 - a class
        """
        The error for a log with records in a format that only librdkafka reads.
        """

    def fetch(self, requested: OffsetRange, settings: FetchSettings) -> Iterator[pa.RecordBatch]:
        """
        Yield the records of a range in offset order.
        """


class ManyRangesEngine(Protocol):
    """
    The module of the wire engine that reads several ranges at once.
    """

    def fetch_many(
        self,
        ranges: Sequence[OffsetRange],
        settings: FetchSettings,
        max_records: int | None,
        fetch_one: Callable[[OffsetRange], Iterator[pa.RecordBatch]],
    ) -> Iterator[tuple[OffsetRange, pa.RecordBatch]]:
        """
        Yield the records of the ranges, each batch with its range.
        """


class SamplingEngine(Protocol):
    """
    The module of the wire engine that samples record sizes.
    """

    def sample_byte_densities(self, positions: Offsets, settings: FetchSettings) -> DensitySamples:
        """
        Return the approximate bytes per offset at each position that has records.
        """


class ProducingEngine(Protocol):
    """
    The module of the wire engine that writes.
    """

    def produce(
        self, batches: Iterable[pa.RecordBatch], kafka: KafkaSettings, topic: str | None
    ) -> int:
        """
        Write every row; return the number of acknowledged records.
        """

    def check_topic(self, kafka: KafkaSettings, topic: str) -> None:
        """
        Raise :class:`MissingTopicError` if the topic is still missing after some seconds.
        """

    def check_brokers(self, kafka: KafkaSettings) -> None:
        """
        Raise the error of brokers that cannot be reached or reject the login.
        """

    def write_in_transaction(
        self,
        batches: Iterable[pa.RecordBatch],
        kafka: KafkaSettings,
        topic: str | None,
        transaction: TransactionSpec,
    ) -> TaskWriteResult:
        """
        Write every row into a transaction, and leave it open.
        """

    def transaction_client(self, kafka: KafkaSettings) -> AbstractContextManager[Transactions]:
        """
        Lend a client that finds and ends transactions.
        """


if TYPE_CHECKING:
    # The modules implement the protocols.
    _FETCHING: FetchingEngine = range_reader
    _MANY_RANGES: ManyRangesEngine = ranges_reader
    _SAMPLING: SamplingEngine = density_samples
    _PRODUCING: ProducingEngine = producer
