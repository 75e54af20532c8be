"""
The site: checks that its generator lacks, and the diagrams that are drawn during the build.
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
FENCE = re.compile(r"^ *```\w*\n.*?^ *```$", re.MULTILINE | re.DOTALL)
ITEM = re.compile(r" *(?:[-*]|\d+\.) ")
DIAGRAMS = [
    pytest.param(text, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, text in enumerate(DIAGRAM.findall(page.read_text()))
]

draw = runpy.run_path(str(ROOT / "scripts" / "sequence_diagrams.py"))["draw"]
check_site = runpy.run_path(str(ROOT / "scripts" / "check_site.py"))


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


def items_in_paragraphs(text: str) -> list[str]:
    """
    Return the lines of a page that look like items of a list, but are read as parts of a paragraph.

    The site's generator needs an empty line before an item that follows a paragraph.
    """
    blocks = [block.splitlines() for block in re.split(r"\n *\n", FENCE.sub("", text))]
    return [
        line
        for first, *rest in filter(None, blocks)
        if not ITEM.match(first)
        for line in rest
        if ITEM.match(line)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_items_are_part_of_a_list(page: Path) -> None:
    """
    No item of a list follows a paragraph directly, since the site would show it as plain text.
    """
    assert items_in_paragraphs(page.read_text()) == []


def test_items_in_a_paragraph_are_found() -> None:
    """
    An item right after a paragraph is found, even inside of a list; other items are not.
    """
    assert items_in_paragraphs("- a\n    - b\n\n  Then.\n- c\n") == ["- c"]
    assert items_in_paragraphs("Text:\n\n1. a\n2. b\n\n```\nx\n- y\n```\n") == []


@pytest.mark.parametrize("text", DIAGRAMS)
def test_diagrams_are_drawn_inside_their_picture(text: str) -> None:
    """
    Each participant, arrow, note and block of a diagram is drawn, and no text leaves the picture.
    """
    picture = ET.fromstring(draw(text))  # noqa: S314 (drawn here)
    width, height = map(float, picture.attrib["viewBox"].split()[2:])
    texts = [node for node in picture.iter() if node.tag.endswith("}text")]
    labels = re.findall(r"(?: as |: |(?:opt|loop|alt|else) )(.+)", text)

    assert len(texts) == len(labels)
    assert {node.text.partition(": ")[2] or node.text for node in texts if node.text} >= {
        part for part in labels if ": " not in part
    }
    for node in texts:
        length, x = 7 * len(node.text or ""), float(node.attrib["x"])
        start = {"middle": x - length / 2, "start": x}[node.attrib["text-anchor"]]
        assert start >= 0, node.text
        assert start + length <= width, node.text
        assert 0 < float(node.attrib["y"]) < height


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("graph LR", "only sequence diagrams are drawn, not: graph LR"),
        ("sequenceDiagram\nparticipant A as B\nA ~> A", "cannot be drawn: A ~> A"),
    ],
)
def test_a_diagram_that_cannot_be_drawn(text: str, message: str) -> None:
    """
    A line that cannot be drawn fails the build, instead of being left out.
    """
    with pytest.raises(ValueError, match=message):
        draw(text)


@pytest.mark.parametrize(
    "loading",
    [
        '<script src="https://cdn.example/x.js"></script>',
        '<script src="//cdn.example/x.js"></script>',
        '<link rel="stylesheet" href="https://cdn.example/x.css">',
        '<link rel="preconnect" href="https://fonts.example">',
        '<link rel="icon" href="HTTPS://cdn.example/x.png">',
        '<img src="https://cdn.example/x.png">',
        '<img src="x.png" srcset="x.png 1x, https://cdn.example/y.png 2x">',
        '<iframe src="https://cdn.example/"></iframe>',
        '<object data="https://cdn.example/x.svg"></object>',
        '<video poster="https://cdn.example/x.png"></video>',
        '<svg><image xlink:href="https://cdn.example/x.png"/></svg>',
        '<p style="background: url(https://cdn.example/x.png)">',
        "<style>@font-face { src: url('https://fonts.example/x.woff2') }</style>",
        "<style>@import 'https://cdn.example/x.css';</style>",
        '<pre class="mermaid">sequenceDiagram</pre>',
    ],
)
def test_loads_from_outside_are_found(loading: str) -> None:
    """
    Each way in which a page makes a browser load something from another server is found.
    """
    assert len(check_site["outside_loads"](f"<html><body>{loading}</body></html>")) == 1


def test_links_and_own_files_are_no_loads() -> None:
    """
    Links for readers, own files, and addresses in text or in a script are accepted.
    """
    page = """
        <link rel="canonical" href="https://docs.example/"><link rel="stylesheet" href="a.css">
        <script src="../a.js"></script><script>const at = "https://docs.example/";</script>
        <a href="https://kafka.example/">Kafka</a> <img src="a.png"> https://example.com
        <svg xmlns="http://www.w3.org/2000/svg"></svg>
    """

    assert check_site["outside_loads"](page) == []
    assert check_site["outside_loads"]("a { background: url(a.png) }", is_style=True) == []


def test_a_style_sheet_that_loads_a_font() -> None:
    """
    A font on another server is found in a style sheet, too.
    """
    style = "@font-face { src: url(https://fonts.example/a.woff2) }"

    assert check_site["outside_loads"](style, is_style=True) == ["https://fonts.example/a.woff2"]


def test_a_site_that_loads_from_outside_fails_the_build(tmp_path: Path) -> None:
    """
    The error names the page and the address; a folder without pages fails the build, too.
    """
    with pytest.raises(SystemExit, match="has no pages"):
        check_site["main"](tmp_path)
    (tmp_path / "index.html").write_text('<img src="a.png">')
    check_site["main"](tmp_path)
    (tmp_path / "bad.html").write_text('<img src="https://cdn.example/a.png">')
    with pytest.raises(SystemExit, match="bad.html loads https://cdn.example/a.png"):
        check_site["main"](tmp_path)
