"""
Writes compared with Spark's JVM connector: equal rows become equal records on the same partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Row, SparkSession

    from pyspark_pykafka.testing import KafkaCluster

pytestmark = pytest.mark.side_by_side


def rows_to_write(spark: SparkSession) -> object:
    """
    Return 300 rows whose keys have many lengths, binary and empty ones included.
    """
    return (
        spark.range(300)
        .selectExpr(
            "CASE WHEN id = 0 THEN X'' ELSE unhex(sha2(cast(id as string), 256)) END AS full",
            "id",
        )
        .selectExpr(
            "substring(full, 1, cast(id % 33 as int)) AS key",
            "CASE WHEN id % 7 = 0 THEN NULL ELSE cast(id as string) END AS value",
            "CASE WHEN id % 3 = 0 THEN NULL ELSE array("
            "named_struct('key', 'a', 'value', X'01'), named_struct('key', 'a', 'value', X'')) END "
            "AS headers",
        )
    )


@pytest.mark.parametrize(
    "codec",
    [
        "lz4",
        *(
            pytest.param(name, marks=pytest.mark.soak)
            for name in ("none", "gzip", "snappy", "zstd")
        ),
    ],
)
def test_both_sinks_write_the_same(
    spark: SparkSession,
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    agreed: Callable[..., list[Row]],
    codec: str,
) -> None:
    """
    Equal rows give equal records on equal partitions (murmur2), whichever connector reads them.
    """
    names = {connector: topic(partitions=7) for connector in ("kafka", "pykafka")}
    for connector, name in names.items():
        writer = rows_to_write(spark).coalesce(1).write.format(connector).mode("append")  # type: ignore[attr-defined]
        writer = writer.option("kafka.bootstrap.servers", kafka_cluster.bootstrap)
        writer.option("kafka.compression.type", codec).option("topic", name).save()

    theirs, ours = (
        [
            (r.partition, r.offset, r.key, r.value, r.headers)
            for r in agreed(subscribe=names[connector], includeHeaders="true")
        ]
        for connector in ("kafka", "pykafka")
    )
    assert len(ours) == 300
    assert ours == theirs
