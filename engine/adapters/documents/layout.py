"""What a layout model, a table model and lines of text make of a page together. Pure geometry.

The layout model says where titles, texts, tables and figures are; no text is lost to its mistakes:
lines outside all regions are read by geometry alone, and so is a table that its model cannot divide.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from engine.adapters.documents.blocks import Block, Box, Line, level, order, overlap, surround
from engine.adapters.documents.reading import body_size, flow, join, paired, top_down

SAME = 0.5
"""Two regions that share this much of the smaller one are one region, seen twice."""

TITLE_SHARE = 0.75
"""A title of this share of the largest title's type is of the first level too."""

FILLED = 0.6
"""A figure whose words fill more of a grid's cells is a table."""


@dataclass(frozen=True, slots=True)
class Region:
    """A part of the page, as the layout model calls it."""

    label: str  # text title figure figure_caption table table_caption header footer reference equation
    box: Box
    score: float


@dataclass(frozen=True, slots=True)
class Cell:
    """Where the table model sees a cell: its first row and column, and its box on the page."""

    row: int
    column: int
    box: Box


Divide = Callable[[Box], Sequence[Cell]]
"""The table model, asked about a part of the page."""


def arrange(lines: Sequence[Line], regions: Sequence[Region], divide: Divide) -> list[Block]:
    """The page's blocks in reading order. Every line is in one of them."""
    body = body_size(lines)
    seen = distinct(regions)
    held, left = together(seen, *assign(lines, seen))
    largest = max(
        (_type(of) for region, of in zip(seen, held, strict=True) if region.label == "title"), default=0
    )
    blocks = flow(top_down(left), body)
    for region, inside in zip(seen, held, strict=True):
        if region.label == "table":
            found = _table(region, inside, divide) or flow(inside, body)
        elif region.label == "figure":
            found = _figure(region, inside, divide)
        elif region.label == "title" and inside:
            found = [
                replace(_one("heading", region, inside), level=1 + (_type(inside) < TITLE_SHARE * largest))
            ]
        else:
            found = flow(inside, body)
        blocks += [replace(block, label=region.label, score=region.score) for block in found]
    return order(blocks)


def distinct(regions: Sequence[Region]) -> list[Region]:
    """Without those that a better one covers. A title is often called a text or a header as well, with
    nearly the same score; then it is a title."""
    chosen: list[Region] = []
    for region in sorted(regions, key=_standing, reverse=True):
        if all(overlap(region.box, other.box) < SAME * min(_area(region), _area(other)) for other in chosen):
            chosen.append(region)
    return chosen


def assign(lines: Sequence[Line], regions: Sequence[Region]) -> tuple[list[list[Line]], list[Line]]:
    """The lines of each region, row by row, and those of none."""
    held: list[list[Line]] = [[] for _ in regions]
    left: list[Line] = []
    for line in lines:
        shares = [overlap(line.box, region.box) for region in regions]
        best = max(range(len(regions)), key=shares.__getitem__, default=-1)
        wide, high = line.box[2] - line.box[0], line.box[3] - line.box[1]
        (held[best] if best >= 0 and shares[best] > 0.5 * wide * high else left).append(line)
    return [top_down(inside) for inside in held], left


def together(
    regions: Sequence[Region], held: Sequence[Sequence[Line]], left: Sequence[Line]
) -> tuple[list[list[Line]], list[Line]]:
    """The same, with the value of each label where the label is: on a form the layout model often sees
    a column of labels, and a column of values or nothing at all."""
    groups = [*held, left]
    free = [at for at in range(len(groups)) if at == len(held) or regions[at].label != "table"]
    home = {line: at for at in free for line in groups[at]}
    for label in [line for line in home if line.text.rstrip().endswith(":")]:
        if (value := _right_of(label, home)) and not value.text.rstrip().endswith(":"):
            home[value] = home[label]
    sorted_out = [
        top_down(line for line in home if home[line] == at) if at in free else list(group)
        for at, group in enumerate(groups)
    ]
    return sorted_out[:-1], sorted_out[-1]


def _right_of(line: Line, others: Iterable[Line]) -> Line | None:
    """The next line on the same level."""
    beside = [o for o in others if level(line.box, o.box) and o.box[0] >= line.box[2]]
    return min(beside, key=lambda other: other.box[0], default=None)


def grid(lines: Sequence[Line], cells: Sequence[Cell]) -> tuple[tuple[str, ...], ...]:
    """The table's rows; nothing when the cells do not fit the lines, or are no table."""
    height = 1 + max((cell.row for cell in cells), default=-1)
    width = 1 + max((cell.column for cell in cells), default=-1)
    if height < 2 or width < 2:
        return ()
    inside: dict[Cell, list[Line]] = {}
    for line in lines:
        best = max(cells, key=lambda cell: overlap(line.box, cell.box))
        if not overlap(line.box, best.box):
            return ()
        inside.setdefault(best, []).append(line)
    table = [[""] * width for _ in range(height)]
    for cell, held in inside.items():
        table[cell.row][cell.column] = join(line.text for line in top_down(held))
    return tuple(tuple(row) for row in table)


def _table(region: Region, inside: Sequence[Line], divide: Divide) -> list[Block]:
    """Nothing when there is no text in it, or the table model makes no sense of it."""
    if not inside:
        return []
    rows = grid(inside, divide(surround([region.box, *(line.box for line in inside)])))
    if not rows:
        return []
    return [Block("pairs" if paired(rows) else "table", region.box, rows)]


def _figure(region: Region, inside: Sequence[Line], divide: Divide) -> list[Block]:
    """A table on a poor scan is often called a figure; lines of a figure are often taken for letters."""
    words = [line for line in inside if re.search(r"[^\W_]", line.text)]
    tables = _table(region, words, divide) if len(words) > 5 else []
    cells = [cell for table in tables for row in table.rows for cell in row]
    if cells and sum(map(bool, cells)) > FILLED * len(cells):
        return tables
    return [_one("figure", region, words)]


def _one(kind: str, region: Region, inside: Sequence[Line]) -> Block:
    text = join(line.text for line in inside)
    return Block(kind, region.box, ((text,),) if text else ())


def _type(lines: Sequence[Line]) -> float:
    """How large the type is: the area of a character, which is steadier than the height of a box."""
    letters = sum(len(line.text) for line in lines)
    return sum(_area(line) for line in lines) / letters if letters else 0.0


def _standing(region: Region) -> float:
    return region.score + {"title": 0.15, "header": -1.0, "footer": -1.0}.get(region.label, 0.0)


def _area(thing: Region | Line) -> float:
    left, top, right, bottom = thing.box
    return (right - left) * (bottom - top)
