"""What became of each request in the twin, as columns, and what the cards did meanwhile. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from engine.events import ResidencyChanged
from replay.answers import Answers
from replay.trace import Floats, Ints

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
    """Every column is (n,), in order of arrival; times in seconds from the first arrival."""

    units: tuple[str, ...]
    unit: NDArray[np.int32]
    """Index into `units`: which was asked for."""
    service_class: NDArray[np.int8]
    arrived: Floats
    latency: Floats
    """Until the answer; inf for what was refused or never answered."""
    prepare: Floats
    queue: Floats
    load: Floats
    run: Floats
    outcomes: tuple[str, ...]
    outcome: NDArray[np.int8]
    """Index into `outcomes`: ok, degraded, or an error's code."""
    cold: NDArray[np.bool_]
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
    """Of all jobs of each request."""
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.arrived)

    def answers(self) -> Answers:
        """As a replay or a recording tells what became of its requests."""
        return Answers(
            models=self.units,
            model=self.unit,
            service_class=self.service_class,
            arrived=self.arrived,
            latency=self.latency,
            prepare=self.prepare,
            queue=self.queue,
            load=self.load,
            run=self.run,
            outcomes=self.outcomes,
            outcome=self.outcome.astype(np.int16),
            cold=self.cold,
        )

    def of(self, unit: str) -> NDArray[np.bool_]:
        """Rows of the requests for this unit."""
        return np.asarray(self.unit == (self.units.index(unit) if unit in self.units else -1))

    def ended(self, *outcomes: str) -> NDArray[np.bool_]:
        """Rows with one of these outcomes."""
        codes = [code for code, name in enumerate(self.outcomes) if name in outcomes]
        return np.isin(self.outcome, codes)

    @property
    def beyond(self) -> bool:
        """Whether so many batches were of sizes never seen that a p99 may be made of them."""
        return sum(self.extrapolated.values()) > 0.01 * self.batches

    @property
    def answered(self) -> NDArray[np.bool_]:
        return np.isfinite(self.latency)

    def swaps(self, unit: str | None = None) -> int:
        """Loads while traffic ran."""
        return sum(c.event == "loaded" and c.at >= 0 and unit in (None, c.unit) for c in self.changes)
