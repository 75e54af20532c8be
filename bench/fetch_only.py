"""
The ceiling of sources that read Kafka: a topic's records are fetched, and neither verified nor
decoded.

It passes Spark the ceiling's Arrow batch, as many rows as it has received. The distance to the
ceiling is the cost of the broker and of the network; no connector in Python can avoid it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from bench.cases import FETCH_ONLY_FORMAT
from bench.ceiling import SCHEMA, ceiling_batch
from pyspark_pykafka.engines.wire.consumer.partition_fetcher import PartitionFetcher
from pyspark_pykafka.engines.wire.consumer.retrying_fetcher import RetryingFetcher
from pyspark_pykafka.engines.wire.network.cluster_pool import borrowed_cluster
from pyspark_pykafka.engines.wire.records._decoder import next_offset
from pyspark_pykafka.offsets import TopicPartition
from pyspark_pykafka.settings.values import KafkaSettings
from pyspark_pykafka.spark.worker import freeze_loaded_modules

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

#: The bytes of a Fetch request, as in a read with the connector's default options.
FETCH_BYTES = 4 * 1024 * 1024
TIMEOUT_MS = 60_000


class FetchOnly(DataSource):
    """
    The data source, for batch reads only; its options are `kafka.bootstrap.servers`, `topic`,
    `partitions` (of the topic) and `size` (of a value, in bytes).
    """

    @classmethod
    def name(cls) -> str:
        """
        Return the name for ``.format(...)``.
        """
        return FETCH_ONLY_FORMAT

    def schema(self) -> str:
        """
        Return the default columns of both connectors.
        """
        return SCHEMA

    def reader(self, schema: Any) -> DataSourceReader:  # noqa: ARG002
        """
        Return the reader of a batch query.
        """
        return _Reader(self.options)


class _Reader(DataSourceReader):
    def __init__(self, options: Mapping[str, str]) -> None:
        self._kafka = KafkaSettings.of({"bootstrap.servers": options["kafka.bootstrap.servers"]})
        self._topic = options["topic"]
        self._size = int(options["size"])
        self._partitions = int(options["partitions"])

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        freeze_loaded_modules()
        batch = ceiling_batch(self._size)
        rows = 0
        for fetched in self._fetched(TopicPartition(self._topic, partition.value)):
            rows += fetched
            while rows >= batch.num_rows:
                yield batch
                rows -= batch.num_rows
        if rows:
            yield batch.slice(0, rows)

    def _fetched(self, tp: TopicPartition) -> Iterator[int]:
        """
        Yield the number of records in each response; the next request is sent before it.
        """
        with borrowed_cluster(self._kafka) as cluster:
            partition = PartitionFetcher(cluster, tp, "read_uncommitted", None)
            fetcher = RetryingFetcher(partition, TIMEOUT_MS)
            max_wait_ms = cluster.config.fetch_wait_max_ms
            end, position = fetcher.watermarks().visible_end, 0
            while position < end:
                response = fetcher.fetch(position, FETCH_BYTES, max_wait_ms)
                assert response is not None
                following = next_offset(response.records, position)
                # The memory of the response is used again.
                del response
                if following < end:
                    fetcher.prefetch(following, FETCH_BYTES, max_wait_ms)
                yield following - position
                position = following
                fetcher.on_progress()
