"""
The site: what its generator does not check, and the diagrams that are drawn while it is built.
"""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
DIAGRAM = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
IMAGE = re.compile(r"!\[[^\]]*\]\(([^)\s]+)\)")
DIAGRAMS = [
    pytest.param(text, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, text in enumerate(DIAGRAM.findall(page.read_text()))
]

draw = runpy.run_path(str(ROOT / "scripts" / "sequence_diagrams.py"))["draw"]


def test_the_menu_has_every_page() -> None:
    """
    Each page is in the menu, and each entry of the menu is a page.
    """
    menu = (ROOT / "mkdocs.yml").read_text().partition("nav:")[2]

    assert sorted(re.findall(r"[\w./-]+\.md", menu)) == sorted(
        str(page.relative_to(DOCS)) for page in PAGES
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_pictures_exist(page: Path) -> None:
    """
    Each picture of a page is a file of the documentation, and is fetched from nowhere else.
    """
    for picture in IMAGE.findall(page.read_text()):
        assert (page.parent / picture).is_file(), picture


@pytest.mark.parametrize("text", DIAGRAMS)
def test_diagrams_are_drawn_inside_their_picture(text: str) -> None:
    """
    Each participant, arrow, note and block of a diagram is drawn, and no text leaves the picture.
    """
    picture = ET.fromstring(draw(text))  # noqa: S314 (drawn here)
    width, height = map(float, picture.attrib["viewBox"].split()[2:])
    texts = [node for node in picture.iter() if node.tag.endswith("}text")]
    said = re.findall(r"(?: as |: |(?:opt|loop|alt|else) )(.+)", text)

    assert len(texts) == len(said)
    assert {node.text.partition(": ")[2] or node.text for node in texts if node.text} >= {
        part for part in said if ": " not in part
    }
    for node in texts:
        length, x = 7 * len(node.text or ""), float(node.attrib["x"])
        start = {"middle": x - length / 2, "start": x}[node.attrib["text-anchor"]]
        assert start >= 0, node.text
        assert start + length <= width, node.text
        assert 0 < float(node.attrib["y"]) < height


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("graph LR", "only sequence diagrams are drawn, not: graph LR"),
        ("sequenceDiagram\nparticipant A as B\nA ~> A", "cannot be drawn: A ~> A"),
    ],
)
def test_a_diagram_that_cannot_be_drawn(text: str, what: str) -> None:
    """
    What is not drawn fails the build with the line, instead of leaving it out.
    """
    with pytest.raises(ValueError, match=what):
        draw(text)
