"""
The metrics of a query with every kind of event, for tests of exporters and pages.
"""

from __future__ import annotations

from tests.support.progress_events import REPLAYED_BATCH, progress

from pyspark_pykafka.metrics.progress_event import parse_batch
from pyspark_pykafka.metrics.query_metrics import QueryMetrics
from pyspark_pykafka.offsets import TopicPartition

LOSS = "KAFKA_DATA_LOSS.PARTITION_OFFSET_CHANGED"


def eventful_metrics(query_id: str = "q", name: str = "flights") -> QueryMetrics:
    """
    Return metrics of a running query with a sample of each metric, at the time 100.
    """
    metrics = QueryMetrics(max_partitions=100)
    metrics.start(query_id, "failed", name, 10.0)
    metrics.end(query_id, "failed", ("DataLossError", "records were lost"), 20.0)
    metrics.start(query_id, "run", name, 30.0)
    replayed = progress(
        {"t": {"0": 7, "1": 5}},
        start={"t": {"0": 3, "1": 5}},
        phases=REPLAYED_BATCH,
        query_id=query_id,
        name=name,
    )
    metrics.add(parse_batch(replayed), 40.0)
    latest = {"t": {"0": 107, "1": 5}, "@lost": {"t": {"0": 2}}, "@losses": {LOSS: 1}}
    new = progress(
        {"t": {"0": 17, "1": 5}},
        start={"t": {"0": 7, "1": 5}},
        latest=latest,
        batch_id=1,
        query_id=query_id,
        name=name,
    )
    metrics.add(parse_batch(new), 50.0)
    metrics.count_dead_letters(query_id, [TopicPartition("t", 0)] * 3)
    metrics.observe_dead_letter_ends({TopicPartition("dead", 0): 3})
    metrics.count_audit("audited", "complete")
    return metrics
