"""
The generated page docs/options.md.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_pykafka.options import OPTIONS
from pyspark_pykafka.options.__main__ import main
from pyspark_pykafka.options.docs_page import page

PAGE = Path(__file__).parents[3] / "docs" / "options.md"


def test_page_is_up_to_date() -> None:
    """
    docs/options.md equals the generated page; write it with `python -m pyspark_pykafka.options`.
    """
    assert PAGE.read_text(encoding="utf-8") == page()


def test_page_lists_every_option() -> None:
    """
    Every option has a row.
    """
    text = page()

    assert [option.name for option in OPTIONS if f"| `{option.name}` |" not in text] == []


def test_main_prints_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    """
    `python -m pyspark_pykafka.options` prints the page and nothing else.
    """
    main()

    assert capsys.readouterr().out == page()


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_defaults_can_be_parsed(option: object) -> None:
    """
    Every option's default is accepted by its own parser.
    """
    for default in (option.default, option.stream_default):  # type: ignore[attr-defined]
        assert default is None or option.parser(default) is not None  # type: ignore[attr-defined]
