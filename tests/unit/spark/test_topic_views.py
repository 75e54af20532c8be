"""
The names and the options of the views of topics.
"""

from __future__ import annotations

import pytest

from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.spark.topic_views import _catalog_names, _literal, _temporary_names


def test_names_of_views() -> None:
    """
    A catalog allows letters, digits and underscores; a temporary view keeps the topic's name.
    """
    topics = ["a-b", "c.d", "e_1"]

    temporary = _temporary_names(topics, "k.", is_case_sensitive=False)
    assert temporary == {f"k.{topic}": topic for topic in topics}
    assert _catalog_names(topics, "k.") == {"k_a_b": "a-b", "k_c_d": "c.d", "k_e_1": "e_1"}


@pytest.mark.parametrize("topics", [["a-b", "a.b"], ["A", "a"]])
def test_topics_with_one_name_in_a_catalog(topics: list[str]) -> None:
    """
    Topics whose views would have the same name are an error, before any view is created.
    """
    with pytest.raises(OptionsError, match=f"the topics {', '.join(topics)} would have one view"):
        _catalog_names(topics, "")


def test_options_as_literals() -> None:
    """
    Quotes and backslashes are escaped as in Spark's SQL.
    """
    assert _literal("it's \\ here") == "'it\\'s \\\\ here'"
