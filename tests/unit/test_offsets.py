"""
Offsets and their documents in the checkpoint.
"""

from __future__ import annotations

import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_pykafka.errors import OffsetsError
from pyspark_pykafka.offsets import (
    EARLIEST,
    LATEST,
    OffsetRange,
    TopicPartition,
    format_partitions,
    offsets_from_json,
    offsets_to_json,
)

partitions = st.builds(
    TopicPartition, st.sampled_from(["a", "B", "orders.v1"]), st.integers(0, 2000)
)
offsets = st.dictionaries(partitions, st.integers(0, 2**63 - 1), max_size=20)


@given(offsets)
def test_document_round_trip(given_offsets: dict[TopicPartition, int]) -> None:
    """
    Offsets come back equal from the JSON that Spark writes into its checkpoint.
    """
    text = json.dumps(offsets_to_json(given_offsets))

    assert offsets_from_json(json.loads(text)) == given_offsets


@given(offsets, st.randoms())
def test_equal_offsets_give_equal_text(given_offsets: dict, random: object) -> None:
    """
    The order in which brokers answer does not show in the document: Spark compares its text.
    """
    shuffled = list(given_offsets.items())
    random.shuffle(shuffled)  # type: ignore[attr-defined]

    assert json.dumps(offsets_to_json(dict(shuffled))) == json.dumps(offsets_to_json(given_offsets))


def test_document_is_the_jvm_connectors() -> None:
    """
    The form is that of Spark's JVM connector, so a checkpoint moves over.
    """
    document = offsets_to_json({TopicPartition("t", 10): 7, TopicPartition("t", 2): 5})

    assert json.dumps(document) == '{"t": {"2": 5, "10": 7}}'


def test_reserved_keys_are_no_topics() -> None:
    """
    Keys that start with '@' are not read as topics.
    """
    document = {"@initial": {"t": {"0": 1}}, "t": {"0": 3}}

    assert offsets_from_json(document) == {TopicPartition("t", 0): 3}


@pytest.mark.parametrize("partitions", [3, None, {"x": 1}, {"0": "many"}, {"0": None}])
def test_malformed_document_names_the_topic(partitions: object) -> None:
    """
    A checkpoint that another source wrote is refused by topic.
    """
    with pytest.raises(OffsetsError, match="offsets of topic 'weather'"):
        offsets_from_json({"weather": partitions})


@given(
    st.builds(
        OffsetRange,
        partitions,
        st.just(EARLIEST) | st.integers(0, 2**63 - 1),
        st.just(LATEST) | st.integers(0, 2**63 - 1),
        st.none() | st.text(),
        st.integers(-1, 2**31 - 1),
        st.integers(-1, 2**31 - 1),
    )
)
def test_range_pickles_whole(whole: OffsetRange) -> None:
    """
    A range crosses to the executors with every field, the hints included.
    """
    assert pickle.loads(pickle.dumps(whole)) == whole  # noqa: S301 - our own bytes


def test_range_names_its_words() -> None:
    """
    Borders that are words show as words in messages.
    """
    assert str(OffsetRange(TopicPartition("t", 3), EARLIEST, 12)) == "t-3[earliest, 12)"


def test_describe_does_not_flood_a_message() -> None:
    """
    A message about a thousand partitions names twenty and counts the rest.
    """
    text = format_partitions([TopicPartition("t", n) for n in range(1000)])

    assert text.endswith("t-19 and 980 more")
