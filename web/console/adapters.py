"""A model's adapters, each as a row of its own: where it is, what it takes, what may be done to it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from engine.catalog import ModelSpec
from engine.looking import STATES as CALLED
from engine.memory.residency import Residency
from engine.orders import Action
from engine.units import adapted, base, parted
from engine.view import ResidencyView
from web.console import words
from web.console.rows import STATES


@dataclass(frozen=True, slots=True)
class Adapter:
    name: str
    unit: str
    """What it is acted on by: `model:adapter`."""
    state: str
    where: str
    size_bytes: int
    pinned: bool
    why: str
    leases: int
    idle: float
    """Seconds since its last batch."""

    @property
    def bytes(self) -> str:
        return words.size(self.size_bytes) if self.size_bytes else words.NOTHING

    @property
    def acts(self) -> tuple[Action, ...]:
        """What makes sense now."""
        if self.pinned:
            return (Action.UNPIN,)
        if self.state in ("available", "failed"):
            return (Action.PIN, Action.LOAD)
        return (Action.PIN, Action.UNLOAD) if self.size_bytes else (Action.PIN,)


def adapters(spec: ModelSpec, residencies: Iterable[ResidencyView]) -> list[Adapter]:
    """Of the model's own weights; those over a profile's come with the profile."""
    here = [*residencies]
    return [_adapter(name, adapted(spec.unit(), name), here) for name in spec.loras]


def pinned_of(unit: str, residencies: Iterable[ResidencyView]) -> tuple[str, ...]:
    """Adapters that keep `unit` where it is."""
    names = [base(r.unit) for r in residencies if r.pinned]
    return tuple(name for name in dict.fromkeys(names) if parted(name)[1] and parted(name)[0] == unit)


def _adapter(name: str, unit: str, residencies: list[ResidencyView]) -> Adapter:
    mine = [r for r in residencies if base(r.unit) == unit]
    states = {CALLED[Residency(r.state)] for r in mine}
    return Adapter(
        name=name,
        unit=unit,
        state=next((state for state in STATES if state in states), "available"),
        where=", ".join(sorted({r.device for r in mine if r.weights_bytes})) or words.NOTHING,
        size_bytes=sum(r.weights_bytes for r in mine),
        pinned=any(r.pinned for r in mine),
        why="; ".join(dict.fromkeys(r.why for r in mine if r.why)),
        leases=sum(r.leases for r in mine),
        idle=min((r.idle for r in mine if r.weights_bytes), default=float("inf")),
    )
