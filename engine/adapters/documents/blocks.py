"""Blocks of a page: their reading order, and how they look in Markdown. Pure geometry; no models.

Boxes are left, top, right, bottom, with the origin at the top left, in any one unit a page.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

Box = tuple[float, float, float, float]

ITEM = re.compile(r"^(?:[•●▪◦‣·*–-]|\(?\d{1,3}[.)]|\(?[a-z][.)])\s+(?=\S)")
"""How an item of a list begins."""

NUMBERED = re.compile(r"^\(?\d{1,3}[.)]\s")


@dataclass(frozen=True, slots=True)
class Line:
    """A piece of text that stands on one line. `size` is the size of its type where that is known."""

    text: str
    box: Box
    score: float = 1.0
    size: float = 0.0


@dataclass(frozen=True, slots=True)
class Block:
    """What belongs together. `rows` are the cells of a table or of pairs, the items of a list, or the
    one text of everything else."""

    kind: str  # heading paragraph list pairs table figure
    box: Box
    rows: tuple[tuple[str, ...], ...] = ()
    level: int = 0
    label: str = ""
    """What the layout model called it."""
    score: float = 1.0

    @property
    def text(self) -> str:
        return "\n".join(" ".join(cell for cell in row if cell) for row in self.rows)


def order(blocks: Sequence[Block]) -> list[Block]:
    """As they are read: top to bottom, and column by column where a gutter divides them."""
    if len(blocks) < 2:
        return list(blocks)
    columns = _split(blocks, 0)
    if len(columns) > 1:
        return [block for column in columns for block in order(column)]
    bands = _split(blocks, 1)
    if len(bands) == 1:
        return sorted(blocks, key=lambda block: (block.box[1], block.box[0]))
    groups = [bands[0]]
    for band in bands[1:]:
        # Paragraphs side by side may end at one height by chance: columns go on below.
        both = [*groups[-1], *band]
        if len(_split(groups[-1], 0)) > 1 and len(_split(both, 0)) > 1:
            groups[-1] = both
        else:
            groups.append(band)
    return [block for group in groups for block in order(group)]


def surround(boxes: Iterable[Box]) -> Box:
    left, top, right, bottom = zip(*boxes, strict=True)
    return min(left), min(top), max(right), max(bottom)


def overlap(a: Box, b: Box) -> float:
    """The area that both cover."""
    wide = min(a[2], b[2]) - max(a[0], b[0])
    high = min(a[3], b[3]) - max(a[1], b[1])
    return max(0.0, wide) * max(0.0, high)


def level(a: Box, b: Box) -> bool:
    """Whether they stand on one line: they share half of the lower one's height."""
    return min(a[3], b[3]) - max(a[1], b[1]) > 0.5 * min(a[3] - a[1], b[3] - b[1])


def markdown(blocks: Iterable[Block]) -> str:
    return "\n\n".join(filter(None, (_markdown(block) for block in blocks)))


def _split(blocks: Sequence[Block], axis: int) -> list[list[Block]]:
    """Blocks on either side of each gap along `axis` that no block crosses."""
    groups: list[list[Block]] = []
    end = before = 0.0
    for block in sorted(blocks, key=lambda block: block.box[axis]):
        high = min(block.box[3] - block.box[1], before)
        # Boxes of lines touch, and on a skewed page they reach into each other.
        if groups and block.box[axis] < end - (0.25 * high if axis == 1 else 0.0):
            groups[-1].append(block)
            end = max(end, block.box[axis + 2])
        else:
            groups.append([block])
            end = block.box[axis + 2]
        before = block.box[3] - block.box[1]
    return groups


def _markdown(block: Block) -> str:
    first = block.rows[0][0] if block.rows else ""
    makers: dict[str, Callable[[], str]] = {
        "heading": lambda: f"{'#' * max(1, block.level)} {first}" if first else "",
        "list": lambda: "\n".join(_item(row[0]) for row in block.rows),
        "pairs": lambda: "\n".join(_labelled(row) for row in block.rows),
        "table": lambda: _table(block.rows),
        "figure": lambda: f"<!-- figure -->\n\n{first}" if first else "<!-- figure -->",
        "paragraph": lambda: re.sub(r"^([#>])", r"\\\1", first),
    }
    return makers[block.kind]()


def _item(text: str) -> str:
    return text if NUMBERED.match(text) else ITEM.sub("- ", text)


def _labelled(row: Sequence[str]) -> str:
    """The pairs of one row, an item each."""
    return "\n".join(
        f"- {label} {value}".rstrip()
        for label, value in zip(row[::2], row[1::2], strict=False)
        if label or value
    )


def _table(rows: Sequence[Sequence[str]]) -> str:
    safe = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    lines = [f"| {' | '.join(row)} |" for row in safe]
    return "\n".join([lines[0], f"|{' --- |' * len(safe[0])}", *lines[1:]])
