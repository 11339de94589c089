"""Line charts as the points of an SVG: the page only draws them. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

WIDTH, HEIGHT = 640.0, 180.0
LEFT, BOTTOM, TOP, RIGHT = 56.0, 22.0, 8.0, 8.0
"""Room for what stands around the plot, in the units of the drawing."""

Line = tuple[str, list[float], list[float]]
"""Name, times in seconds, values."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A tick: where it is along its axis, and what stands there."""

    place: float
    text: str


@dataclass(frozen=True, slots=True)
class Series:
    name: str
    points: str
    """As the `points` of an SVG polyline."""
    xs: tuple[float, ...]
    ys: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Chart:
    title: str
    unit: str
    series: tuple[Series, ...]
    x_marks: tuple[Mark, ...]
    y_marks: tuple[Mark, ...]
    width: float = WIDTH
    height: float = HEIGHT
    left: float = LEFT
    bottom: float = HEIGHT - BOTTOM
    right: float = WIDTH - RIGHT
    top: float = TOP

    def as_json(self) -> dict[str, Any]:
        """The values, not the drawing."""
        return {
            "title": self.title,
            "unit": self.unit,
            "series": [
                {"name": s.name, "x": [round(x, 3) for x in s.xs], "y": [round(y, 6) for y in s.ys]}
                for s in self.series
            ],
        }


def lines(title: str, unit: str, found: Sequence[Line], x_unit: str = " s") -> Chart:
    """From zero upwards, all lines to one scale. Lines without points are left out."""
    kept = [(name, xs, ys) for name, xs, ys in found if xs]
    most_x = max((max(xs) for _, xs, _ in kept), default=1.0) or 1.0
    most_y = max((max(ys) for _, _, ys in kept), default=1.0) or 1.0
    top = nice(most_y)

    def at_x(x: float) -> float:
        return LEFT + x / most_x * (WIDTH - LEFT - RIGHT)

    def at_y(y: float) -> float:
        return HEIGHT - BOTTOM - y / top * (HEIGHT - BOTTOM - TOP)

    series = [
        Series(
            name,
            " ".join(f"{at_x(x):.1f},{at_y(y):.1f}" for x, y in zip(xs, ys, strict=True)),
            tuple(xs),
            tuple(ys),
        )
        for name, xs, ys in kept
    ]
    step = nice(most_x / 5)
    x_marks = [Mark(at_x(n * step), f"{n * step:g}{x_unit}") for n in range(int(most_x / step) + 1)]
    y_marks = [Mark(at_y(top * n / 4), f"{top * n / 4:g}") for n in range(5)]
    return Chart(title, unit, tuple(series), tuple(x_marks), tuple(y_marks))


def nice(value: float) -> float:
    """The next of 1, 2, 4, 5, 8 times a power of ten."""
    if value <= 0:
        return 1.0
    power: float = 10 ** math.floor(math.log10(value))
    return float(next(step * power for step in (1, 2, 4, 5, 8, 10) if step * power >= value * (1 - 1e-9)))
