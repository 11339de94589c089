"""Weights of evicted units in host memory: bounded, the least recently used dropped first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kept:
    """One unit's weights in host memory. `leaving` while they are being copied back to a card."""

    unit: str
    nbytes: int
    last_used: float
    leaving: bool = False


class HostTier:
    """The books of the tier: never above `budget_bytes`. A budget of 0 keeps nothing."""

    def __init__(self, budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self._kept: dict[str, Kept] = {}

    @property
    def used_bytes(self) -> int:
        return sum(kept.nbytes for kept in self._kept.values())

    def __iter__(self) -> Iterator[Kept]:
        """What is kept, the least recently used first."""
        return iter(sorted(self._kept.values(), key=lambda kept: (kept.last_used, kept.unit)))

    def __contains__(self, unit: str) -> bool:
        """Whether the unit can be taken back to a card."""
        return unit in self._kept and not self._kept[unit].leaving

    def keep(self, unit: str, nbytes: int, now: float) -> tuple[bool, list[str]]:
        """Whether there is room for the unit, and who must be dropped for it. Books both, or neither.

        What the unit held before counts as free. What is on its way back to a card stays.
        """
        others = [kept for kept in self if kept.unit != unit]
        over = sum(kept.nbytes for kept in others) + nbytes - self.budget_bytes
        dropped: list[str] = []
        for kept in others:
            if over <= 0:
                break
            if not kept.leaving:
                dropped.append(kept.unit)
                over -= kept.nbytes
        if over > 0:
            return False, []
        for name in dropped:
            del self._kept[name]
        self._kept[unit] = Kept(unit, nbytes, now)
        return True, dropped

    def take(self, unit: str) -> bool:
        """Whether the unit's weights are here. They are then on their way to a card: not dropped for
        others, and not gone before `drop`, since the copy reads them until it ends."""
        if unit not in self:
            return False
        kept = self._kept[unit]
        self._kept[unit] = Kept(unit, kept.nbytes, kept.last_used, leaving=True)
        return True

    def drop(self, unit: str) -> None:
        """The unit's bytes are free again. Nothing happens when it is not here."""
        self._kept.pop(unit, None)
