"""Whom a replay asks: an engine in this process, or a server elsewhere."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from engine.catalog import ModelSpec
from engine.requests import Request
from replay.payloads import Call

NOT_SENT = "NOT_SENT"
"""The outcome of a request that never reached whom it was for."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one request. Stages in seconds, nan where nobody says."""

    code: str
    """ok, degraded, or an error's code."""
    prepare: float = math.nan
    queue: float = math.nan
    load: float = math.nan
    run: float = math.nan
    cold: bool = False
    output_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Look:
    """How the devices are at one moment."""

    devices: Sequence[Mapping[str, Any]] = ()
    """`name`, `used_bytes`, `budget_bytes`, `slots`, `busy_slots`, `busy_seconds`, `lines`, `units`."""
    loads: Mapping[str, int] = field(default_factory=dict)
    """By model, since the server started."""


class Target(Protocol):
    name: str
    shares_process: bool
    """Whether what is asked runs here: then its work delays the sending, too."""

    async def specs(self, models: Sequence[str]) -> list[ModelSpec]:
        """The catalogue's entries of these models. Raises BadTrace for one that is not served."""
        ...

    async def estimate(self, request: Request) -> tuple[int, ...]:
        """The cost of each item. Raises EngineError where it cannot be said."""
        ...

    async def send(self, call: Call) -> Outcome:
        """Returns when it is answered or refused. Raises nothing."""
        ...

    async def look(self) -> Look:
        """How the devices are now; nothing where that cannot be seen."""
        ...
