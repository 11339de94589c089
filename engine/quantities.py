"""Sizes and durations as people write them: `2GiB`, `512MB`, `200ms`, `5min`; and back again."""

from __future__ import annotations

import math
import re
from typing import Annotated

from pydantic import BeforeValidator, Field

_SIZES = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_MOST = 2.0**63
_DURATIONS = {"": 1.0, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_QUANTITY = re.compile(r"\s*(\d+(?:\.\d*)?(?:e[+-]?\d+)?|\.\d+)\s*([A-Za-z]*)\s*")


def size(written: object) -> int:
    """Bytes; a bare number is bytes. Raises ValueError that says what can be written."""
    number, unit = _parts(written)
    if unit.lower() not in _SIZES:
        raise ValueError(f"{written!r} is no size; write bytes, or 512MB, 2GiB")
    if number > _MOST:
        raise ValueError(f"{str(written)[:100]!r} is more than any machine has")
    return math.ceil(number * _SIZES[unit.lower()])


def seconds(written: object) -> float:
    """Seconds; a bare number is seconds. Raises ValueError that says what can be written."""
    number, unit = _parts(written)
    if unit not in _DURATIONS:
        raise ValueError(f"{written!r} is no duration; write seconds, or 200ms, 2s, 5min")
    return number * _DURATIONS[unit]


def as_size(count: int) -> str:
    """The shortest exact spelling: `2GiB`, and `1500` where no unit divides it."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if count and count % _SIZES[unit.lower()] == 0:
            return f"{count // _SIZES[unit.lower()]}{unit}"
    return str(count)


def about(count: float) -> str:
    """A size to read at a glance, three digits or so: `1.4 GiB`. Not exact."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1000:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def as_duration(span: float) -> str:
    """`200ms`, `2s`, `2min`; what `seconds` reads back as the same number."""
    for unit, least in (("min", 60.0), ("s", 1.0)):
        if span >= least and (span / _DURATIONS[unit]).is_integer():
            return f"{int(span / _DURATIONS[unit])}{unit}"
    if span < 1 and seconds(f"{span * 1000:g}ms") == span:
        return f"{span * 1000:g}ms"
    return f"{span!r}s"


def _parts(written: object) -> tuple[float, str]:
    if isinstance(written, bool) or not isinstance(written, int | float | str):
        raise ValueError(f"expected a number or a text, not {type(written).__name__}")
    if isinstance(written, str):
        found = _QUANTITY.fullmatch(written)
        return (float(found[1]), found[2]) if found else (0.0, "?")
    if not math.isfinite(written) or written < 0:
        raise ValueError(f"{written} is negative or no number")
    return float(written), ""


def words(value: object) -> object:
    """A text with commas as a list; anything else as it is."""
    return [word.strip() for word in value.split(",") if word.strip()] if isinstance(value, str) else value


def _number(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("expected a number, not true or false")
    return value


def _empty_is_none(value: object) -> object:
    return None if value == "" else value


Number = Annotated[int, BeforeValidator(_number), Field(ge=0)]
Count = Annotated[int, BeforeValidator(_number), Field(ge=1)]
Real = Annotated[float, BeforeValidator(_number), Field(allow_inf_nan=False)]
Share = Annotated[float, BeforeValidator(_number), Field(ge=0, lt=1)]
Bytes = Annotated[int, BeforeValidator(size)]
Seconds = Annotated[float, BeforeValidator(seconds)]
Words = Annotated[tuple[str, ...], BeforeValidator(words)]
Maybe = BeforeValidator(_empty_is_none)
"""Beside `| None`: an empty text is no value."""
