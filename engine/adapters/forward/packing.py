"""Where sequences lie when they are laid end to end, shortest first. Numbers only; no model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

WASTE = 1.15
"""Where padding is needed, the most tokens computed for each real one."""


@dataclass(frozen=True, slots=True)
class Segment:
    """`count` neighbouring sequences of equal `length`: the `first`-th laid and those after it."""

    first: int
    start: int
    count: int
    length: int

    @property
    def rows(self) -> slice:
        return slice(self.start, self.start + self.count * self.length)

    def of(self, flat: Tensor) -> Tensor:
        """The segment's own rows of a (tokens, ...) tensor, as a view (count, length, ...)."""
        return flat[self.rows].view(self.count, self.length, *flat.shape[1:])


class Layout:
    """Where each sequence lies when all are laid end to end, shortest first.

    "Laid" order is that of the rows; the caller's order is that of `lengths`. Every length is at
    least 1. `order[k]` is the caller's index of the k-th laid sequence.

    `seen` says how many of a sequence's first tokens its tokens attend to, where that is not all of
    them for every sequence; laid in `self.seen`, which is None when it is.
    """

    def __init__(
        self,
        lengths: Sequence[int] | NDArray[np.int64],
        seen: Sequence[int] | NDArray[np.int64] | None = None,
    ) -> None:
        given = np.asarray(lengths, np.int64)
        self.order = np.argsort(given, kind="stable")
        self.lengths = given[self.order]
        self.seen: NDArray[np.int64] | None = None
        if seen is not None and not np.array_equal(seen, given):
            self.seen = np.asarray(seen, np.int64)[self.order]
        self.ends = np.cumsum(self.lengths)
        self.starts = self.ends - self.lengths
        values, firsts, counts = np.unique(self.lengths, return_index=True, return_counts=True)
        self.segments = tuple(
            Segment(int(first), int(self.starts[first]), int(count), int(length))
            for length, first, count in zip(values, firsts, counts, strict=True)
        )
        self._laid = np.empty_like(self.order)
        self._laid[self.order] = np.arange(len(given))
        self._offsets: dict[torch.device, Tensor] = {}

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def tokens(self) -> int:
        return int(self.ends[-1]) if len(self) else 0

    def rows(self, index: int) -> slice:
        """The rows of the caller's `index`-th sequence."""
        laid = self._laid[index]
        return slice(int(self.starts[laid]), int(self.ends[laid]))

    def given(self, laid: Tensor) -> Tensor:
        """One row a sequence, in laid order, put back into the caller's order."""
        return laid[torch.from_numpy(self._laid).to(laid.device)]

    def part(self, laid: slice) -> Layout:
        """The layout of a run of laid sequences alone."""
        return Layout(self.lengths[laid], None if self.seen is None else self.seen[laid])

    def hidden(self, segment: Segment) -> NDArray[np.bool_] | None:
        """(count, length): where tokens of the segment are that no token attends to, if there are any."""
        if self.seen is None:
            return None
        seen = self.seen[segment.first : segment.first + segment.count, None]
        unseen: NDArray[np.bool_] = np.arange(segment.length) >= seen
        return unseen if unseen.any() else None

    def positions(self) -> NDArray[np.int64]:
        """The place of each row inside its own sequence, from 0."""
        return np.arange(self.tokens) - np.repeat(self.starts, self.lengths)

    def offsets(self, device: torch.device) -> Tensor:
        """The row where each laid sequence begins, and the end: int32, as varlen kernels want it."""
        if device not in self._offsets:
            self._offsets[device] = torch.tensor([0, *self.ends], dtype=torch.int32, device=device)
        return self._offsets[device]

    def chunks(self, budget: int) -> Iterator[tuple[slice, slice]]:
        """Runs of laid sequences of at most `budget` tokens, or of one: their places and their rows."""
        first = 0
        while first < len(self):
            begin = int(self.starts[first])
            last = max(first + 1, int(np.searchsorted(self.ends, begin + budget, "right")))
            yield slice(first, last), slice(begin, int(self.ends[last - 1]))
            first = last


def buckets(lengths: NDArray[np.int64], budget: int) -> Iterator[slice]:
    """Runs of ascending `lengths` that may be padded to their longest: little waste, within `budget`."""
    first, real = 0, 0
    for place, length in enumerate(lengths):
        computed = int(length) * (place - first + 1)
        if place > first and computed > min(budget, WASTE * (real + length)):
            yield slice(first, place)
            first, real = place, 0
        real += int(length)
    yield slice(first, len(lengths))
