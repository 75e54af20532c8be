"""
Offsets and their JSON in the checkpoint.
"""

from __future__ import annotations

import json
import pickle
from random import Random  # noqa: TC003 (hypothesis reads annotations)
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_pykafka.errors import OffsetsError
from pyspark_pykafka.offsets import (
    EARLIEST,
    INITIAL,
    LATEST,
    QUERY,
    TOPIC_IDS,
    OffsetRange,
    StreamOffset,
    TopicPartition,
    format_partitions,
    offset_document,
    offsets_from_json,
    offsets_to_json,
)

partitions = st.builds(
    TopicPartition, st.sampled_from(["a", "B", "orders.v1"]), st.integers(0, 2000)
)
offsets = st.dictionaries(partitions, st.integers(0, 2**63 - 1), max_size=20)


@given(offsets)
def test_offsets_survive_json(given_offsets: dict[TopicPartition, int]) -> None:
    """
    Offsets are equal after the JSON that Spark writes into its checkpoint.
    """
    text = json.dumps(offsets_to_json(given_offsets))

    assert offsets_from_json(json.loads(text)) == given_offsets


@given(offsets, st.randoms())
def test_equal_offsets_have_equal_text(
    given_offsets: dict[TopicPartition, int], random: Random
) -> None:
    """
    The JSON does not depend on the order of the partitions: Spark compares its text.
    """
    shuffled = list(given_offsets.items())
    random.shuffle(shuffled)

    assert json.dumps(offsets_to_json(dict(shuffled))) == json.dumps(offsets_to_json(given_offsets))


def test_json_is_that_of_the_jvm_connector() -> None:
    """
    The form equals that of Spark's JVM connector, so its checkpoints can be used.
    """
    document = offsets_to_json({TopicPartition("t", 10): 7, TopicPartition("t", 2): 5})

    assert json.dumps(document) == '{"t": {"2": 5, "10": 7}}'


def test_reserved_keys_are_not_topics() -> None:
    """
    Keys that start with '@' are not parsed as topics.
    """
    document = {"@initial": {"t": {"0": 1}}, "t": {"0": 3}}

    assert offsets_from_json(document) == {TopicPartition("t", 0): 3}


@pytest.mark.parametrize(
    "partitions", [3, None, {"x": 1}, {"0": "many"}, {"0": None}, {"0": float("inf")}]
)
def test_malformed_offsets_name_the_topic(partitions: object) -> None:
    """
    Offsets that another source wrote are rejected, and the error names the topic.
    """
    with pytest.raises(OffsetsError, match="offsets of topic 'weather'"):
        offsets_from_json({"weather": partitions})


KEYS = st.sampled_from(["t", "0", "id", "batch", "store", INITIAL, QUERY, TOPIC_IDS, "@x"])
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
ANY_JSON: st.SearchStrategy[Any] = SCALARS | st.lists(SCALARS, max_size=2)
for _ in range(3):
    ANY_JSON |= st.dictionaries(KEYS, ANY_JSON, max_size=4)


@given(ANY_JSON)
def test_any_offsets_of_other_sources(value: object) -> None:
    """
    Any offset of another source, as an object or as text, is parsed, ignored or rejected with
    OffsetsError.
    """
    for form in (value, json.dumps(value)):
        document = offset_document(form)
        if document is not None:
            try:
                StreamOffset.from_json(document)
            except OffsetsError as error:
                assert error.condition == "MALFORMED_OFFSET"  # noqa: PT017 (it need not be raised)


def test_deep_text_is_not_an_offset() -> None:
    """
    JSON text of another source that is nested too deeply to be parsed is not an offset here.
    """
    assert offset_document("[" * 100_000) is None


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
def test_offset_range_pickles_whole(original: OffsetRange) -> None:
    """
    Every field of a range reaches the executors.
    """
    assert pickle.loads(pickle.dumps(original)) == original  # noqa: S301 - our own bytes


def test_offset_range_prints_sentinels_by_name() -> None:
    """
    Messages show EARLIEST and LATEST by name.
    """
    assert str(OffsetRange(TopicPartition("t", 3), EARLIEST, 12)) == "t-3[earliest, 12)"


def test_format_partitions_is_bounded() -> None:
    """
    A message about a thousand partitions names twenty and counts the rest.
    """
    text = format_partitions([TopicPartition("t", n) for n in range(1000)])

    assert text.endswith("t-19 and 980 more")
