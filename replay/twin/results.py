"""What became of each request in the twin, and what the cards did meanwhile. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.events import ResidencyChanged
from replay.answers import Answers
from replay.trace import Ints

OK, DEGRADED = "ok", "degraded"


@dataclass(frozen=True, slots=True)
class Ran:
    """One batch, or one quantum: `jobs` are those that it began with."""

    began: float
    seconds: float
    unit: str
    device: str
    slot: str
    cost: int
    jobs: tuple[str, ...]


@dataclass(slots=True)
class Peaks:
    """Bytes held at most."""

    devices: dict[str, int] = field(default_factory=dict)
    units: dict[tuple[str, str], int] = field(default_factory=dict)
    """By unit and device: weights, workspace and KV together."""


@dataclass(frozen=True, slots=True)
class Results:
    answers: Answers
    """Of what came to an end, by the unit that was asked for."""
    span: float
    """Until the last event."""
    batches: int
    busy: dict[tuple[str, str], float]
    """Seconds of slots by unit and device."""
    peaks: Peaks
    changes: tuple[ResidencyChanged, ...]
    ran: tuple[Ran, ...]
    """Empty unless they were to be kept."""
    extrapolated: dict[str, int]
    """Batches of a size that was never seen to run, by unit."""
    costs: Ints
    """(n,): of all jobs of each request."""
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.answers)

    @property
    def beyond(self) -> bool:
        """Whether so many batches were of sizes never seen that a p99 may be made of them."""
        return sum(self.extrapolated.values()) > 0.01 * self.batches

    def swaps(self, unit: str | None = None) -> int:
        """Loads while traffic ran."""
        return sum(c.event == "loaded" and c.at >= 0 and unit in (None, c.unit) for c in self.changes)
