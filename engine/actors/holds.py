"""How long a request may wait before any of it runs: one limit for all, so the first in is the first due."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Generic, TypeVar

K = TypeVar("K")


@dataclass(slots=True)
class Holds(Generic[K]):
    limit: float
    """Seconds."""
    _waiting: deque[tuple[float, K]] = field(default_factory=deque)

    def add(self, key: K, since: float) -> None:
        self._waiting.append((since + self.limit, key))

    def due_at(self) -> float:
        return self._waiting[0][0] if self._waiting else math.inf

    def take_due(self, now: float) -> list[K]:
        """Those whose time is up; whether they still wait is for the caller to know."""
        due: list[K] = []
        while self._waiting and self._waiting[0][0] <= now:
            due.append(self._waiting.popleft()[1])
        return due
