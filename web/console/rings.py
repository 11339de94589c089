"""Fixed rings of samples: ten minutes by the second, a day by the minute. Memory does not grow. Pure."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence

SECONDS = 600
MINUTES = 1440


class Ring:
    """The last `size` samples: a time, and `width` numbers each. NaN is what nobody knows."""

    def __init__(self, size: int, width: int) -> None:
        self._size, self._width = size, width
        self._times = array("d")
        self._values = array("f")
        self._next = 0

    def __len__(self) -> int:
        return len(self._times)

    @property
    def newest(self) -> float:
        """When the last sample was taken; minus infinity when none was."""
        return self._times[self._next - 1] if self._times else -math.inf

    def add(self, at: float, values: Sequence[float]) -> None:
        assert len(values) == self._width
        if len(self._times) < self._size:
            self._times.append(at)
            self._values.extend(values)
        else:
            self._times[self._next] = at
            first = self._next * self._width
            self._values[first : first + self._width] = array("f", values)
        self._next = (self._next + 1) % self._size

    def columns(self, since: float) -> list[list[float | None]]:
        """Times and then each column, the oldest first; None where nothing is known."""
        count = len(self._times)
        start = self._next if count == self._size else 0
        order = [(start + n) % count for n in range(count)] if count else []
        kept = [place for place in order if self._times[place] > since]
        columns: list[list[float | None]] = [[round(self._times[place], 3) for place in kept]]
        for column in range(self._width):
            found = (self._values[place * self._width + column] for place in kept)
            columns.append([None if math.isnan(value) else float(f"{value:.6g}") for value in found])
        return columns


class Series:
    """What was seen of one thing, fine for a while and coarse for a day."""

    def __init__(self, width: int) -> None:
        self._blank = (math.nan,) * width
        self.fine = Ring(SECONDS, width)
        self.coarse = Ring(MINUTES, width)

    def second(self, at: float, values: Sequence[float]) -> None:
        """After a pause a sample of nothing comes first, so that no line is drawn over it."""
        if 5.0 < at - self.fine.newest < SECONDS:
            self.fine.add(self.fine.newest + 1.0, self._blank)
        self.fine.add(at, values)

    def minute(self, at: float, values: Sequence[float]) -> None:
        if 150.0 < at - self.coarse.newest < MINUTES * 60:
            self.coarse.add(self.coarse.newest + 60.0, self._blank)
        self.coarse.add(at, values)
