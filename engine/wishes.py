"""What operators want and did, as it is kept: plain rows, which outlast the engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Pinned:
    """A unit that is to be resident always, by the name that the catalogue gives it."""

    unit: str
    device: str | None = None
    min_slots: int = 1


@dataclass(frozen=True, slots=True)
class Unpinned:
    unit: str


@dataclass(frozen=True, slots=True)
class Closed:
    """A model takes no requests until it is opened; `*` stands for all."""

    model: str


@dataclass(frozen=True, slots=True)
class Opened:
    model: str


@dataclass(frozen=True, slots=True)
class Adjusted:
    """What is adjusted of a model or, as `model:profile`, of a profile's limits; without values: nothing."""

    target: str
    values: Mapping[str, Any]


Kept = Pinned | Unpinned | Closed | Opened | Adjusted
"""What of an action lasts until another undoes it, over restarts too."""


@dataclass(frozen=True, slots=True)
class Audited:
    """One action: what was asked of what, how that was before and after, and how it ended.

    `outcome` is None while it is under way, or when a crash ended it. Times are since the epoch.
    """

    id: int
    recorded_at: float
    who: str
    action: str
    target: str
    reason: str
    before: str
    after: str
    outcome: str | None
    concluded_at: float | None
