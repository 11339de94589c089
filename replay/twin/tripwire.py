"""Ends a run as soon as it is certain that a target is missed: what comes after changes no answer. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from engine.requests import ServiceClass

Key = tuple[str, ServiceClass]


@dataclass(slots=True)
class Tripwire:
    since: float
    """Seconds from the first arrival: what came before is not counted."""
    targets: dict[Key, float]
    """Of the groups that are judged, in seconds."""
    left: dict[Key, int]
    """How many of each may still be late."""
    tripped: Key | None = None

    def ended(self, key: Key, arrived: float, latency: float) -> bool:
        """A request has come to its end, with inf for no answer; whether the run should end too."""
        if arrived < self.since or key not in self.left or latency <= self.targets[key]:
            return False
        self.left[key] -= 1
        if self.left[key] < 0:
            self.tripped = key
        return self.tripped is not None
