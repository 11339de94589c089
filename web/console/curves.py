"""Charts of what is over: lines, stretches and moments, as the page's script draws them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Line:
    name: str
    values: Sequence[float | None]
    look: str = "accent"
    """accent, grey, warn, bad; or a number: one of the hues of several."""
    style: str = "line"
    """line, dashed, steps, points, or area: filled, and each upon the one before it."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment, or a stretch where `until` is another; or a height, with `level`."""

    at: float
    label: str
    until: float | None = None
    look: str = "accent"
    level: bool = False


@dataclass(frozen=True, slots=True)
class Curve:
    title: str
    x: Sequence[float]
    lines: Sequence[Line]
    x_kind: str = "seconds"
    """seconds (from a beginning) or rate."""
    y_kind: str = "rate"
    """rate, seconds, bytes, times or number."""
    marks: Sequence[Mark] = field(default_factory=tuple)
    until: float | None = None
    """Where the horizontal axis ends, if not with the last value."""
    most: float | None = None
    """Where the vertical axis ends; what is above is cut off."""

    def as_json(self) -> dict[str, Any]:
        return _plain(asdict(self))  # type: ignore[no-any-return]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value
