"""Which units are evicted and loaded again, over and over. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from engine.memory.rules import THRASH_SECONDS, THRASH_TIMES

Key = tuple[str, str]  # unit, device


@dataclass(slots=True)
class Thrash:
    _evicted: set[Key] = field(default_factory=set)  # and not back yet
    _returns: dict[Key, deque[float]] = field(default_factory=dict)

    def evicted(self, key: Key) -> None:
        self._evicted.add(key)

    def loaded(self, key: Key, now: float) -> bool:
        """Whether this load is one too many: the last of several in a short time, each after an eviction."""
        if key not in self._evicted:
            return False
        self._evicted.remove(key)
        self._returns.setdefault(key, deque(maxlen=THRASH_TIMES)).append(now)
        return self.thrashing(key, now)

    def thrashing(self, key: Key, now: float) -> bool:
        returns = self._returns.get(key)
        if returns is None or len(returns) < THRASH_TIMES:
            return False
        return now - returns[0] <= THRASH_SECONDS
