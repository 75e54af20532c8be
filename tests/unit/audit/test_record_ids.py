"""
Record ids, compared with the results of Spark's xxhash64.
"""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_pykafka.audit import record_ids
from pyspark_pykafka.audit.record_ids import SHIFT, checksum_of_offsets, checksum_of_range
from pyspark_pykafka.audit.report import Checksum
from pyspark_pykafka.offsets import TopicPartition

FLIGHTS = TopicPartition("flights", 3)


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("a", -9104112664622661145),
        ("flights", -4764291817880858791),
        ("x" * 8, -2796505317679066101),
        ("a.topic-of_12", -5141599424487557108),
        ("x" * 31, -8974203226579335431),
        ("y" * 32, -729324744680806498),
        (
            "a-name-of-a-topic-that-is-longer-than-sixty-four-bytes-and-odd-1",
            -7916917650656904863,
        ),
    ],
)
def test_ids_are_those_of_spark(topic: str, expected: int) -> None:
    """
    The id is the upper bits of Spark's xxhash64(topic, 3, 2**40 + 7), for topics of all lengths.
    """
    start = 2**40 + 7

    assert checksum_of_range(TopicPartition(topic, 3), start, start + 1) == Checksum(
        1, expected >> SHIFT
    )


@pytest.mark.parametrize(
    ("partition", "offset", "expected"),
    [(0, 0, -2984540310115537990), (7, 123456789, 4927095314378805369)],
)
def test_ids_without_a_topic_are_those_of_spark(partition: int, offset: int, expected: int) -> None:
    """
    Without the topic, the id is the upper bits of Spark's xxhash64(partition, offset).
    """
    tp = TopicPartition("flights", partition)

    assert checksum_of_range(tp, offset, offset + 1, include_topic=False) == Checksum(
        1, expected >> SHIFT
    )


@given(st.integers(0, 2**50), st.integers(0, 60), st.booleans())
def test_a_range_is_the_sum_of_its_offsets(start: int, size: int, include_topic: bool) -> None:
    """
    The checksum of a range is the sum of the checksums of its offsets, whether these are hashed in
    one block, in several blocks or singly.
    """
    single = [
        checksum_of_range(FLIGHTS, number, number + 1, include_topic=include_topic)
        for number in range(start, start + size)
    ]
    offsets = np.arange(start, start + size, dtype=np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_ids, "BLOCK", 7)
        total = checksum_of_range(FLIGHTS, start, start + size, include_topic=include_topic)
        listed = checksum_of_offsets(FLIGHTS, offsets, include_topic=include_topic)

    assert total == listed == reduce(Checksum.__add__, single, Checksum())
    assert offsets.tolist() == list(range(start, start + size))


def test_ids_depend_on_topic_and_partition() -> None:
    """
    The same offset in another partition or topic has another id.
    """
    tps = [FLIGHTS, TopicPartition("flights", 4), TopicPartition("planes", 3)]

    assert len({checksum_of_range(tp, 5, 6) for tp in tps}) == 3
