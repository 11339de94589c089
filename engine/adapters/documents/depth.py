"""How deeply a text is nested, counted without nesting: its readers call themselves for each level."""

from __future__ import annotations

import re

from engine.errors import InputTooLong

MOST = {"html": 100, "md": 16}
"""Levels. docling's reader of Markdown takes twice as long for each quotation inside another: 27 s for 30;
that of HTML takes 14 s for a thousand levels, and runs out of stack."""

COUNTED = tuple(MOST)
_TAG = re.compile(rb"<(/?)([a-zA-Z][a-zA-Z0-9]*)[^<>]*?(/?)>")
_OPEN_ENDED = frozenset(
    b"area base br col dd dt embed hr img input li link meta option p source td tfoot th thead tr wbr".split()
)
"""Elements that need no end, so that many beginnings say nothing of depth."""
_QUOTED = re.compile(rb"^[ \t]*(?:>[ \t]?)+", re.M)


def check(data: bytes, format: str) -> None:
    """Raises InputTooLong that names the limit."""
    found = _of_tags(data) if format == "html" else max(_of_tags(data), _of_quotations(data))
    if found > MOST[format]:
        text = f"The {format} is nested {found} levels deep; the limit is {MOST[format]} (max_depth)."
        raise InputTooLong(text, length=found, max_length=MOST[format])


def _of_tags(data: bytes) -> int:
    level = deepest = 0
    for tag in _TAG.finditer(data):
        end, name, closed = tag.groups()
        if closed or name.lower() in _OPEN_ENDED:
            continue
        level = max(0, level - 1) if end else level + 1
        deepest = max(deepest, level)
    return deepest


def _of_quotations(data: bytes) -> int:
    return max((lead[0].count(b">") for lead in _QUOTED.finditer(data)), default=0)
