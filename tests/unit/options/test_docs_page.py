"""
The documentation of the options.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_pykafka.options import OPTIONS
from pyspark_pykafka.options.__main__ import main
from pyspark_pykafka.options.docs_page import page

PAGE = Path(__file__).parents[3] / "docs" / "options.md"


def test_the_page_is_fresh() -> None:
    """
    The page in docs/ is what the tables say; write it with `python -m pyspark_pykafka.options`.
    """
    assert PAGE.read_text(encoding="utf-8") == page()


def test_every_option_is_on_the_page() -> None:
    """
    Each option has a row.
    """
    text = page()

    assert [option.name for option in OPTIONS if f"| `{option.name}` |" not in text] == []


def test_the_page_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """
    `python -m pyspark_pykafka.options` prints the page and nothing else.
    """
    main()

    assert capsys.readouterr().out == page()


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_defaults_can_be_parsed(option: object) -> None:
    """
    The default of each row is a value that the row's own parser takes.
    """
    for default in (option.default, option.stream_default):  # type: ignore[attr-defined]
        assert default is None or option.parser(default) is not None  # type: ignore[attr-defined]
