"""Which lines of text belong together, told from where they stand. Pure geometry; no models."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from statistics import median

from engine.adapters.documents.blocks import ITEM, Block, Box, Line, level, surround

LABELLED = re.compile(r"^[^\W\d][^:]{0,40}:\s*\S")
ASCENDING = re.compile(r"[A-Z0-9bdfhklt$(){}\[\]/|]")
DESCENDING = re.compile(r"[gjpqy$(){}\[\]/|,;]")
PROSE = 45
"""A cell of more characters is text in a column, not a cell of a table."""


def pdf_line(text: str, box: Box) -> Line:
    """A line as PDFium tells it, with the size of its type: the height of its ink depends on its letters.

    PDFium has the character 2 where a word is divided at the end of a line.
    """
    text = "".join(c for c in " ".join(text.replace("\x02", "-").split()) if c.isprintable())
    shares = {(True, True): 0.94, (True, False): 0.73, (False, True): 0.74, (False, False): 0.53}
    share = shares[bool(ASCENDING.search(text)), bool(DESCENDING.search(text))]
    return Line(text, box, 1.0, _height(box) / share)


def flow(lines: Sequence[Line], body: float = 0.0) -> list[Block]:
    """Blocks of lines that come in reading order, by geometry alone: tables and pairs where cells
    stand in columns, headings where type is larger than `body`, lists, paragraphs."""
    rows = _rows([line for line in lines if line.text.strip()])
    pitch = _pitch(rows)
    blocks: list[Block] = []
    at = 0
    while at < len(rows):
        for made_by in (_columns, _pairs, _heading, _list, _paragraph):
            taken, found = made_by(rows[at:], body, pitch)
            if taken:
                break
        blocks += found
        at += taken
    return blocks


def body_size(lines: Sequence[Line]) -> float:
    """The size of type that most of the text has; 0 where none is known."""
    sizes = [line.size for line in lines for _ in line.text]
    return median(sizes) if sizes else 0.0


def top_down(lines: Iterable[Line]) -> list[Line]:
    """Lines row by row, from left to right in each."""
    found: list[list[Line]] = []
    for line in sorted(lines, key=lambda line: _middle(line.box)):
        row = next((row for row in reversed(found[-3:]) if level(row[0].box, line.box)), None)
        if row is None:
            found.append([line])
        else:
            row.append(line)
    return [line for row in found for line in sorted(row, key=lambda line: line.box[0])]


def paired(rows: Sequence[Sequence[str]]) -> bool:
    """Whether a table is a form: every second cell is the label of the next."""
    if not rows or len(rows[0]) % 2:
        return False
    labels = [cell for row in rows for cell in row[::2] if cell]
    return bool(labels) and all(label.rstrip().endswith(":") for label in labels)


def join(lines: Iterable[str]) -> str:
    """One text of lines; a word that was divided at the end of a line is whole again."""
    text = ""
    for line in filter(None, (line.strip() for line in lines)):
        if re.search(r"[^\W\d]-$", text) and line[0].islower():
            text = text[:-1] + line
        else:
            text = f"{text} {line}".strip()
    return text


_Row = Sequence[Line]
_Rows = Sequence[_Row]


def _rows(lines: Sequence[Line]) -> list[list[Line]]:
    """Lines that follow each other on one level and to the right are one row."""
    rows: list[list[Line]] = []
    for line in lines:
        last = rows[-1][-1] if rows else None
        if last and level(last.box, line.box) and line.box[0] >= last.box[2] - 0.5 * _height(line.box):
            rows[-1].append(line)
        else:
            rows.append([line])
    return rows


def _pitch(rows: _Rows) -> float:
    """From the top of a line to the top of the next, inside a paragraph."""
    tops = [surround(line.box for line in row)[1] for row in rows]
    steps = sorted(below - top for top, below in itertools.pairwise(tops) if below > top)
    usual = 1.5 * median(max(line.size, _height(line.box)) for row in rows for line in row) if rows else 0.0
    return min(steps[len(steps) // 4], usual) if steps else usual


_Taken = tuple[int, list[Block]]


def _columns(rows: _Rows, body: float, pitch: float) -> _Taken:
    """A run of rows whose cells stand below each other."""
    width = len(rows[0])
    if width < 2:
        return 0, []
    run = 1
    while run < len(rows) and len(rows[run]) == width and _aligned(rows[0], rows[run]):
        run += 1
    if run < 2:
        return 0, []
    taken = rows[:run]
    cells = tuple(tuple(line.text.strip() for line in row) for row in taken)
    box = surround(line.box for row in taken for line in row)
    if median(len(cell) for row in cells for cell in row) > PROSE:
        return run, [block for column in zip(*taken, strict=True) for block in flow(column, body)]
    return run, [Block("pairs" if paired(cells) else "table", box, cells)]


def _pairs(rows: _Rows, body: float, pitch: float) -> _Taken:
    """A run of labels with their values; one alone when the value stands apart."""
    run = 0
    while run < len(rows) and _label(rows[run]):
        run += 1
    if run == 0 or (run == 1 and len(rows[0]) == 1):
        return 0, []
    cells = tuple(_pair(row) for row in rows[:run])
    return run, [Block("pairs", surround(line.box for row in rows[:run] for line in row), cells)]


def _list(rows: _Rows, body: float, pitch: float) -> _Taken:
    """Items, each with the lines that go on below it."""
    items: list[list[str]] = []
    at = 0
    while at < len(rows):
        text = " ".join(line.text.strip() for line in rows[at])
        if ITEM.match(text):
            items.append([text])
        elif items and _goes_on(rows[at - 1], rows[at], pitch) and rows[at][0].box[0] > rows[0][0].box[0]:
            items[-1].append(text)
        else:
            break
        at += 1
    if len(items) < 2:
        return 0, []
    box = surround(line.box for row in rows[:at] for line in row)
    return at, [Block("list", box, tuple((join(item),) for item in items))]


def _heading(rows: _Rows, body: float, pitch: float) -> _Taken:
    size = max(line.size for line in rows[0])
    text = join(line.text for line in rows[0])
    if not body or size < 1.15 * body or len(text) > 120:
        return 0, []
    level = 1 if size >= 1.5 * body else 2
    return 1, [Block("heading", surround(line.box for line in rows[0]), ((text,),), level)]


def _paragraph(rows: _Rows, body: float, pitch: float) -> _Taken:
    run = 1
    while (
        run < len(rows)
        and len(rows[run]) == 1
        and _goes_on(rows[run - 1], rows[run], pitch)
        and not ITEM.match(rows[run][0].text)
        and not (body and rows[run][0].size >= 1.15 * body)
    ):
        run += 1
    text = join(" ".join(line.text.strip() for line in row) for row in rows[:run])
    return run, [Block("paragraph", surround(line.box for row in rows[:run] for line in row), ((text,),))]


def _goes_on(above: _Row, below: _Row, pitch: float) -> bool:
    step = surround(line.box for line in below)[1] - surround(line.box for line in above)[1]
    return 0 < step <= 1.35 * pitch


def _label(row: _Row) -> bool:
    first = row[0].text.strip()
    return first.endswith(":") if len(row) > 1 else bool(LABELLED.match(first))


def _pair(row: _Row) -> tuple[str, str]:
    if len(row) > 1:
        return row[0].text.strip(), join(line.text for line in row[1:])
    label, _, value = row[0].text.partition(":")
    return f"{label.strip()}:", value.strip()


def _aligned(above: _Row, below: _Row) -> bool:
    """Each cell shares more than a third of the narrower one's width with the one above."""
    return all(
        min(a.box[2], b.box[2]) - max(a.box[0], b.box[0]) > min(a.box[2] - a.box[0], b.box[2] - b.box[0]) / 3
        for a, b in zip(above, below, strict=True)
    )


def _height(box: Box) -> float:
    return box[3] - box[1]


def _middle(box: Box) -> float:
    return (box[1] + box[3]) / 2
