"""Numbers and times as the console says them: units always shown, `n/a` for what nobody knows. Pure."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from engine.quantities import about

NONE = "n/a"
"""Nobody knows."""
NOTHING = "–"
"""It is known that there is nothing."""


def size(count: float | None) -> str:
    return NONE if count is None else about(count)


def exact(count: int | None) -> str:
    """Bytes to the byte, in groups of three digits."""
    return NONE if count is None else f"{count:,} B".replace(",", "\u202f").replace("-", "\u2212")


def whole(count: int | None) -> str:
    return NONE if count is None else f"{count:,}".replace(",", "\u202f")


def brief(count: float) -> str:
    """A count to read at a glance: `1.2 M`."""
    for unit, least in (("G", 1e9), ("M", 1e6), ("k", 1e4)):
        if count >= least:
            return f"{count / (least if least > 1e4 else 1e3):.1f} {unit}"
    return f"{count:.0f}"


def span(seconds: float | None) -> str:
    """A duration with two or three digits: `12 ms`, `3.2 s`, `14 min`."""
    if seconds is None or not math.isfinite(seconds):
        return NONE
    size = abs(seconds)
    if size == 0:
        return "0 ms"
    if size < 0.0095:
        return f"{seconds * 1000:.1f} ms"
    if size < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if size < 9.95:
        return f"{seconds:.1f} s"
    if size < 120:
        return f"{seconds:.0f} s"
    if size < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if size < 172800 else f"{seconds / 86400:.0f} d"


def ago(seconds: float | None) -> str:
    """How long since, coarsely: what is told again and again must not change with every look."""
    if seconds is None:
        return NONE
    if seconds < 60:
        return "just now"
    return f"{seconds // 60:.0f} min ago" if seconds < 7200 else f"{span(seconds)} ago"


def rate(per_second: float | None) -> str:
    if per_second is None:
        return NONE
    return f"{per_second:.0f}/s" if per_second >= 99.5 else f"{per_second:.1f}/s"


def some(number: int) -> str:
    """A count in a table where most are zero, which must not be read again and again."""
    return whole(number) if number else NOTHING


def share(part: float | None) -> str:
    return NONE if part is None or not math.isfinite(part) else f"{part * 100:.0f} %"


def stamp(at: float | None) -> str:
    """Seconds since the epoch, for programs and for whoever rests the pointer on a time: UTC."""
    return "" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def clock(at: float | None) -> str:
    """The same for people."""
    return NONE if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def count(number: int, one: str, many: str = "") -> str:
    """`1 job`, `2 jobs`."""
    return f"{whole(number)} {one if number == 1 else many or one + 's'}"


FILTERS = {
    "size": size,
    "exact": exact,
    "whole": whole,
    "some": some,
    "brief": brief,
    "span": span,
    "ago": ago,
    "rate": rate,
    "share": share,
    "stamp": stamp,
    "clock": clock,
    "count": count,
}
