"""What the demo's own program reads out of answers: Markdown's tables and sections, and likeness. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Rows = list[list[str]]


def tables(markdown: str) -> Iterator[Rows]:
    """The cells of each table, header first."""
    rows: Rows = []
    for line in [*markdown.splitlines(), ""]:
        if line.startswith("|"):
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if not _is_rule(cells):
                rows.append(cells)
        elif rows:
            yield rows
            rows = []


def pairs(markdown: str) -> dict[str, str]:
    """What a form says: tables of two columns, and lines of `label: value`."""
    found = {row[0]: row[1] for rows in tables(markdown) if len(rows[0]) == 2 for row in rows}
    for line in markdown.splitlines():
        label, colon, value = line.lstrip("- ").partition(": ")
        if colon and not line.startswith(("|", "#")) and len(label) < 40:
            found[label] = value.strip()
    return found


def plain(markdown: str) -> str:
    """As sentences, for models that were trained on prose: no bars, no hashes."""
    lines: list[str] = []
    for block in markdown.split("\n\n"):
        rows = next(tables(block), None)
        if rows is None:
            lines.append(block.lstrip("# "))
        elif len(rows[0]) == 2:
            lines += [f"{label}: {value}." for label, value in rows]
        else:
            head, *body = rows
            lines += [f"{row[0]}: {_named(head[1:], row[1:])}." for row in body]
    return "\n".join(line for line in lines if line)


def sections(markdown: str) -> list[str]:
    """The parts under headings of the second level, each with its heading."""
    return [part.strip() for part in f"\n{markdown}".split("\n## ")[1:]]


def likeness(one: Sequence[float], other: Sequence[float]) -> float:
    """Cosine."""
    lengths = math.sqrt(sum(a * a for a in one)) * math.sqrt(sum(b * b for b in other))
    return sum(a * b for a, b in zip(one, other, strict=True)) / lengths if lengths else 0.0


def vectors(answer: Mapping[str, Any]) -> list[list[float]]:
    return [item["dense"]["values"] for item in answer["items"]]


def entities(answer: Mapping[str, Any]) -> dict[str, list[str]]:
    """By label, each text once, in the order in which they stand."""
    found: dict[str, list[str]] = {}
    for item in answer["items"]:
        for entity in item["entities"]:
            texts = found.setdefault(entity["label"], [])
            if entity["text"] not in texts:
                texts.append(entity["text"])
    return found


def _is_rule(cells: Sequence[str]) -> bool:
    return all(cell and not cell.strip("-:") for cell in cells)


def _named(head: Sequence[str], cells: Sequence[str]) -> str:
    return ", ".join(f"{name.lower()} {cell}" for name, cell in zip(head, cells, strict=True) if cell)
