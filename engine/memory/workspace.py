"""What batches take beside the weights: declared by the family, then learned from peaks. Pure."""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from engine.memory.footprint import Footprint

PER_OCTAVE = 2
ENOUGH = 5
"""Readings before what was learned replaces what was declared."""

MARGIN = 1.1
"""Above what was ever seen: no two batches of a cost are quite the same."""

FORGETTING = 0.02
"""Share of its distance to a lower reading that a bucket's highest falls with each of those."""

GROWTH = 1.5
"""A batch that ran out of memory is taken to have needed so many times what it was given."""

MOST_GROWTH = 8.0


@dataclass(slots=True)
class WorkspaceCurve:
    """The most bytes that batches of a cost took, in buckets of half an octave; never falls with cost.

    Between two buckets it is linear. Below the first and above the last it leans on what was declared.
    """

    cap: int | None = None
    """The largest batch since one ran out of memory; a single job may be larger."""
    revision: int = 0
    """Grows with whatever is learned."""
    _grown: float = 1.0  # what was declared, times this: it was too little
    _buckets: dict[int, tuple[float, float, int]] = field(default_factory=dict)  # cost, bytes, readings
    _costs: list[float] = field(default_factory=list)
    _bytes: list[float] = field(default_factory=list)

    def __bool__(self) -> bool:
        """Whether anything was learned that was not declared."""
        return bool(self._buckets) or self._grown > 1.0

    @property
    def known(self) -> bool:
        """Whether there are readings enough to go by."""
        return bool(self._costs)

    def observe(self, cost: int, peak_bytes: int) -> None:
        """A batch of `cost` held `peak_bytes` at its peak."""
        bucket = int(math.log2(max(1, cost)) * PER_OCTAVE)
        at, highest, readings = self._buckets.get(bucket, (float(cost), float(peak_bytes), 0))
        if peak_bytes >= highest:
            at, highest = float(cost), float(peak_bytes)
        else:
            highest -= FORGETTING * (highest - peak_bytes)
        self._buckets[bucket] = (at, highest, readings + 1)
        self._fit()

    def ran_out(self, cost: int, declared: Footprint) -> None:
        """A batch of `cost` did not get the memory that it needed, though the ledger had it."""
        self._grown = min(MOST_GROWTH, self._grown * GROWTH)
        self.revision += 1
        if cost <= 0:
            return
        self.cap = max(1, min(self.cap or cost, cost // 2))
        if self.known:
            self.observe(cost, int(self.workspace(cost, declared) * GROWTH / MARGIN))

    def workspace(self, cost: int, declared: Footprint) -> int:
        if not self.known:
            return int(declared.workspace_base + cost * declared.workspace_per_cost * self._grown)
        place = bisect.bisect_left(self._costs, cost)
        if place == 0:
            proportional = self._bytes[0] * cost / self._costs[0]
            return int(min(self._bytes[0], max(proportional, declared.workspace(cost))))
        if place == len(self._costs):
            return int(self._bytes[-1] + (cost - self._costs[-1]) * self._slope(declared))
        low, high = self._costs[place - 1], self._costs[place]
        share = (cost - low) / (high - low)
        return int(self._bytes[place - 1] + share * (self._bytes[place] - self._bytes[place - 1]))

    def cost_within(self, free_bytes: int, declared: Footprint) -> int:
        """The largest cost whose workspace is no more than `free_bytes`; may be 0."""
        if not self.known:
            per_cost = declared.workspace_per_cost * self._grown
            left = free_bytes - declared.workspace_base
            return 0 if left < 0 else int(left / per_cost) if per_cost else 1 << 62
        if free_bytes < self._bytes[0]:
            proportional = int(max(0, free_bytes) * self._costs[0] / self._bytes[0])
            return min(proportional, declared.cost_within(free_bytes))
        place = bisect.bisect_right(self._bytes, free_bytes)
        if place == len(self._bytes):
            slope = self._slope(declared)
            more = (free_bytes - self._bytes[-1]) / slope if slope else float(1 << 62)
            return int(self._costs[-1] + more)
        low, high = self._bytes[place - 1], self._bytes[place]
        share = (free_bytes - low) / (high - low)
        return int(self._costs[place - 1] + share * (self._costs[place] - self._costs[place - 1]))

    def points(self) -> dict[str, Any]:
        """What was learned, as plain data."""
        readings = {str(bucket): list(reading) for bucket, reading in sorted(self._buckets.items())}
        return {"readings": readings, "grown": self._grown, "cap": self.cap}

    def learn(self, points: Mapping[str, Any]) -> None:
        """Start from what an earlier run learned."""
        readings: Mapping[str, Sequence[float]] = points["readings"]
        self._buckets = {int(b): (float(c), float(s), int(n)) for b, (c, s, n) in readings.items()}
        self._grown, self.cap = float(points["grown"]), points["cap"]
        self._fit()

    def _slope(self, declared: Footprint) -> float:
        """Bytes a cost beyond the last reading: the more careful of two guesses."""
        return max(declared.workspace_per_cost, self._bytes[-1] / self._costs[-1])

    def _fit(self) -> None:
        self.revision += 1
        if sum(readings for _, _, readings in self._buckets.values()) < ENOUGH:
            return
        self._costs, self._bytes, highest = [], [], 1.0
        for _, (cost, peak, _) in sorted(self._buckets.items()):
            highest = max(highest, peak * MARGIN)
            self._costs.append(max(1.0, cost))
            self._bytes.append(highest)


class Takes(msgspec.Struct, frozen=True):
    """What a unit takes on one device, as far as is known now."""

    declared: Footprint
    curve: WorkspaceCurve

    @property
    def kv_bytes_per_token(self) -> int:
        return self.declared.kv_bytes_per_token

    @property
    def largest_batch(self) -> int:
        return self.curve.cap or 1 << 62

    def workspace(self, cost: int) -> int:
        """Bytes that a batch of `cost` takes while it runs."""
        return self.curve.workspace(cost, self.declared)

    def cost_within(self, workspace_bytes: int) -> int:
        """The largest cost whose batch takes no more than `workspace_bytes`; may be 0."""
        return self.curve.cost_within(workspace_bytes, self.declared)
