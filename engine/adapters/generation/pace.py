"""How long the next step of a generating model will take, learned from the steps before it.

A step's time is close to a straight line over its rows (measured on one CPU core with 53 M weights:
19 ms + 1.05 ms a row from 1 to 256 rows): reading the weights, then arithmetic. The line follows
what was seen lately, because caches grow and neighbours come and go.
"""

from __future__ import annotations

RECENT = 0.1
"""Weight of the newest step."""
UNKNOWN_ROWS = 64
"""What a step may take before anything was measured."""


class Pace:
    """Exponentially weighted least squares of seconds over rows. Has no clock."""

    def __init__(self) -> None:
        self._rows = self._seconds = 0.0  # means
        self._spread = self._together = 0.0  # variance of rows, covariance with seconds
        self._per_row: float | None = None

    def observe(self, rows: int, seconds: float) -> None:
        """A step of so many rows took so long."""
        if not self._rows:
            self._rows, self._seconds = float(rows), seconds
            return
        off, late = rows - self._rows, seconds - self._seconds
        self._rows += RECENT * off
        self._seconds += RECENT * late
        self._spread = (1 - RECENT) * (self._spread + RECENT * off * off)
        self._together = (1 - RECENT) * (self._together + RECENT * off * late)
        # Steps of nearly one size say nothing about the slope: the last one known stays.
        if self._spread > (0.1 * self._rows) ** 2:
            self._per_row = max(0.0, self._together / self._spread)

    def seconds(self, rows: int) -> float:
        """Predicted; 0 before anything was measured. Without a slope: in proportion, never less than seen."""
        if not self._rows:
            return 0.0
        if self._per_row is None:
            return self._seconds * max(1.0, rows / self._rows)
        return max(0.0, self._seconds + self._per_row * (rows - self._rows))

    def rows_within(self, seconds: float, most: int) -> int:
        """The most rows, up to `most`, whose step is predicted to end in time; 0 when none is."""
        if not self._rows:
            return min(most, UNKNOWN_ROWS)
        if self.seconds(1) > seconds:
            return 0
        if self.seconds(most) <= seconds:
            return most
        low, high = 1, most
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.seconds(middle) <= seconds else (low, middle)
        return low
