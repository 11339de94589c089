"""Places that units have, or are to have: pins, claims and expectations. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import msgspec

from engine.requests import ServiceClass


@dataclass(slots=True)
class Seat:
    """The place that is kept for a pinned unit."""

    device: str
    slots: int = 1
    """Room for so many of its batches at once; from two on it is kept free of the batches of others."""
    asks: list[int] = field(default_factory=list)
    """Operators who wait for the unit to be there."""
    former: Seat | None = None
    """Its place before, which is kept until it is there."""
    passing: bool = False
    """It is over soon: whoever has no room beside it waits."""


@dataclass(slots=True)
class Claim:
    """A unit that should become resident and is not yet."""

    unit: str
    since: float
    device: str | None = None
    """Where room is being made for it."""


class Want(msgspec.Struct, frozen=True):
    """How urgent the work is that waits for a unit."""

    urgency: ServiceClass = ServiceClass.STANDARD
    due: float = math.inf


@dataclass(slots=True)
class Hope:
    """A unit that is to be loaded ahead if that costs nobody anything; a claim comes before it."""

    unit: str
    until: float
    device: str | None = None
    """Where a second copy is asked for, while there is work; None: anywhere, if there is none yet."""
