"""How long a request may wait before any of it runs: one limit for all, counted from when each came."""

from __future__ import annotations

import heapq
import itertools
import math
from dataclasses import dataclass, field
from typing import Generic, TypeVar

K = TypeVar("K")

SLACK = 64
"""Entries of requests that are over may lie here until they are this many more than those that wait."""


@dataclass(slots=True)
class Holds(Generic[K]):
    limit: float
    """Seconds."""
    _due: list[tuple[float, int, K]] = field(default_factory=list)
    _waiting: set[K] = field(default_factory=set)
    _order: itertools.count[int] = field(default_factory=itertools.count)

    def __len__(self) -> int:
        return len(self._due)

    def add(self, key: K, since: float) -> None:
        self._waiting.add(key)
        heapq.heappush(self._due, (since + self.limit, next(self._order), key))

    def drop(self, key: K) -> None:
        """It is over, or some of it runs."""
        self._waiting.discard(key)
        if len(self._due) > 2 * len(self._waiting) + SLACK:
            self._due = [entry for entry in self._due if entry[2] in self._waiting]
            heapq.heapify(self._due)

    def due_at(self) -> float:
        return self._due[0][0] if self._due else math.inf

    def take_due(self, now: float) -> list[K]:
        """Those that still wait and whose time is up."""
        due: list[K] = []
        while self._due and self._due[0][0] <= now:
            key = heapq.heappop(self._due)[2]
            if key in self._waiting:
                self._waiting.remove(key)
                due.append(key)
        return due
