"""What the engine shows of itself: copies, made when somebody looks. Nobody may act on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ResidencyView:
    """One unit on one device."""

    unit: str
    device: str
    state: str  # absent loading ready leaving failed
    weights_bytes: int = 0
    pinned: bool = False
    leases: int = 0
    since: float = 0.0  # seconds in this state
    idle: float = 0.0  # seconds since its last lease ended
    why: str = ""  # why it is resident, or why it is not
    floor_bytes: int = 0  # the least that it needs beside its weights to run


@dataclass(frozen=True, slots=True)
class ModelView:
    """One catalogue entry, with what happened to it since the server started."""

    id: str
    state: str  # available loading loaded unloading failed
    residencies: tuple[ResidencyView, ...] = ()
    waiting: int = 0  # jobs
    waiting_cost: int = 0
    oldest: float = 0.0  # seconds that the oldest job has waited
    in_flight: int = 0
    loads: int = 0
    evictions: int = 0
    last_error: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True)
class DeviceView:
    """One device and the lines of its ledger, in bytes. Their sum never exceeds `budget_bytes`."""

    name: str
    kind: str
    total_bytes: int
    budget_bytes: int
    lines: Mapping[str, int] = field(default_factory=dict)  # weights workspace kv context foreign
    slots: int = 0
    busy_slots: int = 0
    busy_seconds: float = 0.0  # device-seconds spent since the server started

    @property
    def used_bytes(self) -> int:
        return sum(self.lines.values())


@dataclass(frozen=True, slots=True)
class EngineView:
    models: tuple[ModelView, ...]
    devices: tuple[DeviceView, ...]
    accepting: bool = True
    held_bytes: int = 0  # bodies and prepared inputs in host memory
    held_limit: int = 0
    totals: Mapping[str, int] = field(default_factory=dict)  # requests by outcome
