"""How long a request may wait before any of it runs: one limit for all, counted from when each came."""

from __future__ import annotations

import heapq
import itertools
import math
from dataclasses import dataclass, field
from typing import Generic, TypeVar

K = TypeVar("K")


@dataclass(slots=True)
class Holds(Generic[K]):
    limit: float
    """Seconds."""
    _waiting: list[tuple[float, int, K]] = field(default_factory=list)
    _order: itertools.count[int] = field(default_factory=itertools.count)

    def add(self, key: K, since: float) -> None:
        heapq.heappush(self._waiting, (since + self.limit, next(self._order), key))

    def due_at(self) -> float:
        return self._waiting[0][0] if self._waiting else math.inf

    def take_due(self, now: float) -> list[K]:
        """Those whose time is up; whether they still wait is for the caller to know."""
        due: list[K] = []
        while self._waiting and self._waiting[0][0] <= now:
            due.append(heapq.heappop(self._waiting)[2])
        return due
