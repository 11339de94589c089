"""The server as the twin builds it: its cards, its units, its rules, and where each figure is from. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.memory.footprint import Footprint
from engine.memory.rules import MemoryRules
from engine.requests import ServiceClass
from engine.scheduling.rules import SchedulingRules
from engine.units import UnitFacts
from replay.twin.timing import Loads, Timing

NEVER = 1 << 62


@dataclass(frozen=True, slots=True)
class Card:
    """A device: what it has, and how fast it is beside the one that was measured."""

    name: str
    kind: str
    slots: int
    memory_bytes: int
    context_bytes: int = 0
    host_tier: bool = False
    speed: float = 1.0
    slowed: tuple[float, ...] = (1.0,)
    """How many times as long a batch takes while so many others run there, from none on."""
    loading: float = 1.0
    """How many times as long, besides, while a model loads there; and a load while batches run."""
    handover: float = 0.0
    """Seconds between the end of a batch and the next one's begin that nobody computes in."""
    spells: tuple[float, ...] = ()
    """How many times as long batches took as usual, second after second; none: always as usual."""

    def slowing(self, others: int) -> float:
        """How many times as long a batch takes beside so many. Beside more than were ever seen each one
        more slows as is assumed, where any does."""
        known = len(self.slowed) - 1
        if others <= known:
            return self.slowed[others]
        if self.slowed[known] == 1.0:
            return 1.0
        return self.slowed[known] * assumed(others) / assumed(known)


def assumed(others: int) -> float:
    """How much batches are taken to slow each other where nobody knows: half way, on a scale of ratios,
    between not at all and taking turns."""
    return math.sqrt(others + 1)


@dataclass(frozen=True, slots=True)
class Unit:
    """One unit: what the catalogue says of it, what it takes, and how long it takes."""

    facts: UnitFacts
    footprint: Footprint
    timings: Mapping[str, Timing]
    """By the name of a device, or by a kind for all of that kind."""
    loads: Loads
    prepare: tuple[tuple[float, ...], ...] = ((0.0,),)
    """Seconds of preparation before the queue, as requests had it, by how many batches ran when they came."""
    default_class: ServiceClass = ServiceClass.STANDARD
    max_batch_cost: int = NEVER
    max_batch_jobs: int = NEVER
    max_cost: int = NEVER
    """Of one job: longer inputs are cut to it."""
    degrade: str | None = None
    """The unit that answers when this one has no room."""

    @property
    def name(self) -> str:
        return self.facts.unit

    def timing(self, card: Card) -> Timing:
        """The card's own times, or those of its kind, or of any other: then they are a guess."""
        found = self.timings.get(card.name) or self.timings.get(card.kind)
        return found or next(iter(self.timings.values()))


@dataclass(frozen=True, slots=True)
class Server:
    cards: tuple[Card, ...]
    units: Mapping[str, Unit]
    scheduling: SchedulingRules = field(default_factory=SchedulingRules)
    memory: MemoryRules = field(default_factory=MemoryRules)
    headroom: float = 0.2
    host_memory: int = 0
    max_hold: float = 120.0
    together: float = 0.0
    """Of requests that come while another one is prepared, the share that goes into the queue with it."""
    pins: tuple[str, ...] = ()
    resident: tuple[str, ...] = ()
    """Units that are there when the traffic begins, as far as they fit."""
    curves: Mapping[tuple[str, str], Mapping[str, tuple[float, float, int]]] = field(default_factory=dict)
    """Run times that the scheduler has learned by then, by unit and device."""
    workspaces: Mapping[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)
    origin: str = "described"
    """What it was built from, and when that was."""
    assumed: tuple[str, ...] = ()
    """What nobody has measured, in words."""
    measured: tuple[str, ...] = ()
    """What was learned of the devices, in words."""

    def target(self, unit: str, service_class: ServiceClass) -> float:
        """The p99 target of a class of this unit, in seconds."""
        own = self.units[unit].facts.targets
        return own.get(service_class, self.scheduling.targets[service_class])
