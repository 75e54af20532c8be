"""
Fails if a page of the built site loads something from another server.

    .venv/bin/python scripts/check_site.py site

Links to other sites are fine. Resources that a browser loads by itself are not: scripts, styles,
fonts and images.
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path

_OUTSIDE = re.compile(r"\s*(?:https?:)?//", re.IGNORECASE)
_IN_STYLE = re.compile(r"(?:url\(|@import)\s*[\"']?\s*((?:https?:)?//[^\s\"')]+)", re.IGNORECASE)
#: Attributes that make a browser load something, on any element.
_LOADING = {"src", "srcset", "poster", "data", "background"}
#: Elements whose href is loaded; the href of others is a link for readers.
_LOADED_LINKS = {"link", "image", "use"}
#: The theme loads Mermaid from a CDN for elements of this class.
_MERMAID = "mermaid"


def main(folder: Path) -> None:
    """
    Print the resources loaded from outside, and exit with 1 if there are any.
    """
    pages = sorted(folder.rglob("*.html"))
    if not pages:
        sys.exit(f"{folder} has no pages; build them with: make docs")
    loads = [
        f"{path.relative_to(folder)} loads {address}"
        for path in (*pages, *sorted(folder.rglob("*.css")), *sorted(folder.rglob("*.svg")))
        for address in outside_loads(path.read_text(), is_style=path.suffix == ".css")
    ]
    if loads:
        sys.exit("\n".join(loads))


def outside_loads(text: str, *, is_style: bool = False) -> list[str]:
    """
    Return the addresses on other servers that a browser loads for a page, image or style sheet.
    """
    if is_style:
        return _IN_STYLE.findall(text)
    page = _Page()
    page.feed(text)
    page.close()
    return page.loads


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self._in_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in_style = tag == "style"
        for name, value in attrs:
            text = value or ""
            if name == "class" and _MERMAID in text.split():
                self.loads.append("Mermaid, by the theme")
            if name == "style":
                self.loads += _IN_STYLE.findall(text)
            if _is_loaded(tag, name, dict(attrs)):
                addresses = text.split(",") if name == "srcset" else [text]
                self.loads += [
                    address.split()[0] for address in addresses if _OUTSIDE.match(address)
                ]

    def handle_endtag(self, tag: str) -> None:
        if tag == "style":
            self._in_style = False

    def handle_data(self, data: str) -> None:
        if self._in_style:
            self.loads += _IN_STYLE.findall(data)


def _is_loaded(tag: str, name: str, attributes: dict[str, str | None]) -> bool:
    if name in _LOADING:
        return True
    # Only search engines read the canonical address and the like.
    is_metadata = attributes.get("rel") in {"canonical", "prev", "next", "edit", "alternate"}
    return name in {"href", "xlink:href"} and tag in _LOADED_LINKS and not is_metadata


if __name__ == "__main__":
    main(Path(sys.argv[1]))
