"""The few shapes that batches are filled up to, so that what is made for a shape can be used again.

Numbers only; no model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.adapters.forward.packing import Layout

ROWS = tuple(1 << step for step in range(7))
LENGTHS = tuple(16 << step for step in range(6))
MOST = 4096
"""Tokens of the largest: beyond it a card is busy with arithmetic, and starting it costs little."""
FREE, WASTE = 512, 2
"""A grid of so few tokens takes as long as its launches do; a larger one has no more than so many for each
real one."""


@dataclass(frozen=True, slots=True)
class Grid:
    """`rows` sequences of `length` tokens each, fillers among them."""

    rows: int
    length: int

    @property
    def tokens(self) -> int:
        return self.rows * self.length


def every() -> Iterator[Grid]:
    """All that there are."""
    for rows in ROWS:
        for length in LENGTHS:
            if rows * length <= MOST:
                yield Grid(rows, length)


def grid_of(lengths: Sequence[int] | NDArray[np.int64]) -> Grid | None:
    """The smallest that holds sequences of these lengths; None where it is too large, or mostly filler."""
    rows = next((rows for rows in ROWS if rows >= len(lengths)), None)
    length = next((length for length in LENGTHS if length >= max(lengths)), None)
    if rows is None or length is None:
        return None
    grid = Grid(rows, length)
    return grid if grid.tokens <= min(MOST, max(FREE, WASTE * sum(lengths))) else None


def aligned(lengths: NDArray[np.int64]) -> Grid:
    """As long as the longest of these, up to a multiple of 8 as kernels for masks want it."""
    return Grid(len(lengths), -(-int(max(lengths)) // 8) * 8)


def places(layout: Layout, grid: Grid) -> NDArray[np.int64]:
    """Where each row of a layout stands in the grid, laid end to end: (tokens,)."""
    begins = np.repeat(np.arange(len(layout)) * grid.length, layout.lengths)
    found: NDArray[np.int64] = begins + layout.positions()
    return found


def seen(layout: Layout, grid: Grid) -> NDArray[np.bool_]:
    """(rows, length): the tokens that others attend to. A row of fillers sees its first."""
    counts = np.ones(grid.rows, np.int64)
    counts[: len(layout)] = layout.lengths if layout.seen is None else layout.seen
    found: NDArray[np.bool_] = np.arange(grid.length) < counts[:, None]
    return found
