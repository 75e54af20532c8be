"""
Draws the Mermaid sequence diagrams of the documentation as SVG while the site is built.

Otherwise each reader's browser would fetch Mermaid from a CDN. Only the part of Mermaid's language
that the pages use is supported: participants, arrows, notes, and the blocks loop, opt, and alt with
else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html import escape
from typing import Any

_PARTICIPANT = re.compile(r"participant (\w+) as (.+)")
_ARROW = re.compile(r"(\w+)(--?)>>(\w+): (.+)")
_NOTE = re.compile(r"Note over (\w+): (.+)")
_BLOCK = re.compile(r"(loop|opt|alt|else) (.+)")

# Pixels of the picture, which the page scales down where it is narrow.
_CHARACTER, _ROW, _GAP, _MARGIN, _BOX = 7.2, 36, 36, 12, 30
_SELF_WIDTH, _INDENT = 30, 8


@dataclass
class _Drawing:
    """
    The picture so far: the x of each participant's line, the y of the next row, and the elements.
    """

    x: dict[str, float]
    width: float
    y: float = _MARGIN + _BOX + 28.0
    shapes: list[str] = field(default_factory=list)
    blocks: list[float] = field(default_factory=list)

    def text(self, x: float, y: float, text: str, anchor: str = "middle") -> None:
        self.shapes.append(
            f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>'
        )

    def arrow(self, start: str, line: str, end: str, text: str) -> None:
        x1, x2 = self.x[start], self.x[end]
        dashes = ' stroke-dasharray="5 4"' if line == "--" else ""
        if start == end:
            path = f"M{x1:g} {self.y:g}h{_SELF_WIDTH}v10h{3 - _SELF_WIDTH}"
            self.text(x1 + _SELF_WIDTH + 6, self.y + 8, text, "start")
        else:
            path = f"M{x1:g} {self.y:g}H{x2 + (3 if x2 < x1 else -3):g}"
            self.text((x1 + x2) / 2, self.y - 6, text)
        self.shapes.append(f'<path d="{path}"{dashes} marker-end="url(#arrow)"/>')
        self.y += _ROW

    def note(self, over: str, text: str) -> None:
        half = _width(text) / 2
        # A note over the first or last participant stays inside the picture.
        x = min(max(self.x[over], half + _MARGIN), self.width - half - _MARGIN)
        self.shapes.append(_box(x - half, self.y - 18, 2 * half, 24, 'class="note"'))
        self.text(x, self.y - 2, text)
        self.y += _ROW

    def begin(self, word: str, text: str) -> None:
        if word == "else":
            indent = _INDENT * len(self.blocks)
            line = f"M{indent:g} {self.y - 20:g}H{self.width - indent:g}"
            self.shapes.append(f'<path d="{line}" stroke-dasharray="2 4"/>')
        else:
            self.blocks.append(self.y - 20)
        self.text(_INDENT * len(self.blocks) + 6, self.y - 4, f"{word}: {text}", "start")
        self.y += _ROW

    def end(self) -> None:
        indent, top = _INDENT * len(self.blocks), self.blocks.pop()
        self.shapes.append(_box(indent, top, self.width - 2 * indent, self.y - 18 - top))
        self.y += 16


def _width(text: str) -> float:
    return _CHARACTER * len(text) + 2 * _MARGIN


def _box(x: float, y: float, width: float, height: float, attributes: str = "") -> str:
    sides = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="3"'
    return f"<rect {sides} {attributes}/>"


def _columns(labels: dict[str, str], arrows: list[tuple[str, str, str, str]]) -> dict[str, float]:
    """
    Return the x of each participant, so far apart that labels and texts of arrows fit in between.
    """
    names = list(labels)
    x: dict[str, float] = {}
    for index, name in enumerate(names):
        x_position = _MARGIN + _width(labels[name]) / 2
        for earlier in names[:index]:
            adjacent = (_width(labels[earlier]) + _width(labels[name])) / 2 + _GAP
            texts = [_width(text) for a, _, b, text in arrows if {a, b} == {earlier, name}]
            x_position = max(
                x_position,
                x[earlier] + max([adjacent if earlier == names[index - 1] else 0, *texts]),
            )
        # The text of an arrow from a participant to itself is to the right of its line.
        previous = names[index - 1] if index else None
        to_itself = [_width(text) for a, _, b, text in arrows if a == b == previous]
        x[name] = max(
            [x_position, *(x[previous] + _SELF_WIDTH + width for width in to_itself if previous)]
        )
    return x


def draw(source: str) -> str:
    """
    Return the SVG of a sequence diagram; raise ``ValueError`` for a line that cannot be drawn.
    """
    first, *lines = [line.strip() for line in source.strip().splitlines()]
    if first != "sequenceDiagram":
        msg = f"only sequence diagrams are drawn, not: {first}"
        raise ValueError(msg)
    labels = {m[1]: m[2] for line in lines if (m := _PARTICIPANT.fullmatch(line))}
    arrows = [(m[1], m[2], m[3], m[4]) for line in lines if (m := _ARROW.fullmatch(line))]
    notes = [m[2] for line in lines if (m := _NOTE.fullmatch(line))]
    x = _columns(labels, arrows)
    last = list(labels)[-1]
    needed = [x[last] + _width(labels[last]) / 2, *(_width(note) + _MARGIN for note in notes)]
    needed += [x[a] + _SELF_WIDTH + _width(text) for a, _, b, text in arrows if a == b == last]
    drawing = _Drawing(x, max(needed) + _MARGIN)
    for line in lines:
        _draw_line(drawing, line)
    return _picture(drawing, labels)


def _draw_line(drawing: _Drawing, line: str) -> None:
    if arrow := _ARROW.fullmatch(line):
        drawing.arrow(*arrow.groups())
    elif note := _NOTE.fullmatch(line):
        drawing.note(*note.groups())
    elif block := _BLOCK.fullmatch(line):
        drawing.begin(*block.groups())
    elif line == "end":
        drawing.end()
    elif not _PARTICIPANT.fullmatch(line):
        msg = f"this line of a sequence diagram cannot be drawn: {line}"
        raise ValueError(msg)


def _picture(drawing: _Drawing, labels: dict[str, str]) -> str:
    heads = []
    for name, label in labels.items():
        x_position, width = drawing.x[name], _width(label)
        heads.append(f'<path class="life" d="M{x_position:g} {_MARGIN + _BOX}V{drawing.y:g}"/>')
        heads.append(_box(x_position - width / 2, _MARGIN, width, _BOX, 'class="head"'))
        middle = f'x="{x_position:g}" y="{_MARGIN + 20}" text-anchor="middle"'
        heads.append(f"<text {middle}>{escape(label)}</text>")
    size = f'viewBox="0 0 {drawing.width:g} {drawing.y:g}" style="max-width:{drawing.width:g}px"'
    marker = (
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" '
        'markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8z"/></marker></defs>'
    )
    title = escape(", ".join(labels.values()))
    return (
        f'<svg class="sequence" role="img" aria-label="Sequence of {title}" {size} '
        f'xmlns="http://www.w3.org/2000/svg">{marker}{"".join([*heads, *drawing.shapes])}</svg>'
    )


def sequence_fence(source: str, *_: Any, **__: Any) -> str:
    """
    Return the HTML of a fenced block, for ``pymdownx.superfences``.
    """
    return f"<figure>{draw(source)}</figure>"
