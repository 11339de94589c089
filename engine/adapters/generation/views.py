"""The images of one running sequence: what is yet to be looked at, and what was seen."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Glance:
    """What goes through the vision tower at once: a tile of an image, or all of one that has none."""

    inputs: Mapping[str, NDArray[Any]]
    """Arguments of `get_image_features`; `pixel_values` are uint8."""
    tokens: int
    """Of the prompt, which it gives a meaning to."""
    patches: int
    """What the tower's time goes by."""

    @property
    def nbytes(self) -> int:
        return sum(values.nbytes for values in self.inputs.values())


class View:
    """Its prompt may be read up to the first image token that has no features yet.

    `blocks`, ascending starts and ends, are stretches of it whose tokens see each other in both directions:
    one step reads all of such a stretch, or nothing.
    """

    def __init__(
        self,
        glances: Sequence[Glance],
        places: NDArray[np.intp],
        features: Tensor,
        positions: NDArray[np.int64] | None,
        blocks: Sequence[tuple[int, int]] = (),
    ) -> None:
        """`places`: where image tokens stand in the prompt, ascending. `features` (levels, image tokens,
        hidden) are filled in their order. `positions` (3, prompt), where tokens have three of them."""
        self.waiting = deque(glances)
        self._places = places
        self._features = features
        self._seen = 0
        self._positions = positions
        self._begins, self._ends = np.array(blocks, np.int64).reshape(-1, 2).T

    @property
    def nbytes(self) -> int:
        return self._features.nbytes

    def see(self, found: Tensor) -> None:
        """Features (levels, tokens, hidden) of the glance that waited longest."""
        glance = self.waiting.popleft()
        if found.shape[1] != glance.tokens:
            raise ValueError(f"an image has {glance.tokens} tokens and {found.shape[1]} features")
        self._features[:, self._seen : self._seen + glance.tokens] = found
        self._seen += glance.tokens

    def readable(self, at: int, count: int) -> int:
        """How many of the `count` tokens from `at` on may be read now."""
        if self._seen < len(self._places):
            count = min(count, int(self._places[self._seen]) - at)
        return self.unbroken(at, count)

    def unbroken(self, at: int, count: int) -> int:
        """`count`, or as many as there are before the block that would be broken."""
        begin, end = self._block(at + count - 1)
        return count if end <= at + count else max(begin - at, 0)

    def least(self, at: int) -> int:
        """The fewest tokens that a step reads from `at` on: a block, or one."""
        return max(1, self._block(at)[1] - at)

    def reach(self, at: int, count: int) -> NDArray[np.int64] | None:
        """Of the `count` tokens from `at` on, the last that each sees; None where that is itself."""
        last = np.arange(at, at + count)
        for begin, end in zip(self._begins, self._ends, strict=True):
            last[max(begin - at, 0) : max(end - at, 0)] = end - 1
        return last if (last > np.arange(at, at + count)).any() else None

    def _block(self, token: int) -> tuple[int, int]:
        """Begin and end of the one that holds a token; an empty one before it where none does."""
        number = int(np.searchsorted(self._begins, token, "right")) - 1
        if number < 0 or self._ends[number] <= token:
            return token, token
        return int(self._begins[number]), int(self._ends[number])

    def within(self, at: int, count: int) -> tuple[NDArray[np.intp], Tensor]:
        """Which of the `count` tokens from `at` on are of images, and their features."""
        first, end = np.searchsorted(self._places, [at, at + count])
        return self._places[first:end] - at, self._features[:, first:end]

    def positions(self, at: int, count: int) -> NDArray[np.int64]:
        """(3, count): in time, height and width, of the tokens from `at` on."""
        if self._positions is None:
            return flat(at, count)
        read = self._positions.shape[1]
        inside = self._positions[:, at : at + count]
        # what follows the prompt goes on from its furthest place
        after = flat(int(self._positions.max(initial=-1)) + 1 + max(at - read, 0), count - inside.shape[1])
        return np.concatenate([inside, after], 1)

    def forget(self) -> None:
        """The prompt is read: nobody asks for its images again."""
        levels, _, hidden = self._features.shape
        self._features = self._features.new_empty((levels, 0, hidden))
        self._places = self._places[:0]
        self._begins = self._ends = self._begins[:0]
        self._seen = 0


def flat(at: int, count: int) -> NDArray[np.int64]:
    """(3, count) positions of words."""
    return np.broadcast_to(np.arange(at, at + count, dtype=np.int64), (3, count))
