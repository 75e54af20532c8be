"""
The page on tuning names options that exist, and quotes figures that were measured.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pyspark_pykafka.options import OPTIONS

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "tuning.md").read_text()
MEASURED = (DOCS / "performance.md").read_text() + (DOCS / "scaling.md").read_text()
KNOWN = {option.name for option in OPTIONS}
#: The first cells of tables, where settings are named.
NAMED = sorted(
    {
        name.partition("=")[0]
        for row in re.findall(r"^\| (`.+?) \| ", PAGE, re.MULTILINE)
        for name in re.findall(r"`([^`]+)`", row)
    }
)
FIGURES = sorted(set(re.findall(r"\b\d+\.\d+\b", PAGE)))


def is_setting(name: str) -> bool:
    """
    Return whether the connector has the option.

    Names that belong to Kafka, Spark or Python are accepted without a check: settings by their
    prefix, the two functions that the page's tables name, and the compression codec.
    """
    unchecked = ("kafka.", "spark.", "register(", "coalesce(")
    return name in KNOWN or name.startswith(unchecked) or name == "zstd"


@pytest.mark.parametrize("name", NAMED)
def test_the_page_names_options_that_exist(name: str) -> None:
    """
    Each setting in a table is an option of the connector, unless it belongs to Kafka or Spark.
    """
    assert is_setting(name)


@pytest.mark.parametrize("figure", FIGURES)
def test_each_figure_was_measured(figure: str) -> None:
    """
    Each figure is also on a page of measurements, which names the files in bench/results.
    """
    assert re.search(rf"(?<![\d.]){re.escape(figure)}(?![\d.])", MEASURED)


def test_the_checks_can_fail() -> None:
    """
    There are settings and figures to check, and an unknown option is found.
    """
    assert len(NAMED) > 12
    assert len(FIGURES) > 8
    assert not is_setting("minPartition")
