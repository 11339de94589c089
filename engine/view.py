"""What the engine shows of itself: copies, made when somebody looks. Nobody may act on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.orders import CatalogDone
from engine.records.views import RecorderView


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
    thrashing: bool = False  # evicted and loaded again, over and over


@dataclass(frozen=True, slots=True)
class ModelView:
    """One catalogue entry, with what happened to it since the server started."""

    id: str
    state: str  # available loading loaded unloading failed
    residencies: tuple[ResidencyView, ...] = ()
    waiting: int = 0  # jobs
    waiting_cost: int = 0
    waiting_by_class: Mapping[str, int] = field(default_factory=dict)  # jobs
    oldest: float = 0.0  # seconds that the oldest job has waited
    in_flight: int = 0
    loads: int = 0
    evictions: int = 0
    last_error: Mapping[str, object] | None = None
    paused: bool = False  # takes no new requests


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
    unattributed_bytes: int = 0  # held by our allocator beyond what the lines say; below zero when less
    alarm: str = ""  # what is wrong with it, where something is
    utilisation: float | None = None  # share of the time that its driver saw it compute
    temperature: float | None = None  # degrees Celsius

    @property
    def used_bytes(self) -> int:
        return sum(self.lines.values())


@dataclass(frozen=True, slots=True)
class CatalogView:
    """The catalogue that is served, and what is wrong with its files as they are now."""

    directories: tuple[str, ...] = ()
    models: int = 0
    version: int = 0
    complaints: tuple[str, ...] = ()
    last_change: CatalogDone | None = None


@dataclass(frozen=True, slots=True)
class EngineView:
    models: tuple[ModelView, ...]
    devices: tuple[DeviceView, ...]
    accepting: bool = True
    held_bytes: int = 0  # bodies and prepared inputs in host memory
    held_limit: int = 0
    totals: Mapping[str, int] = field(default_factory=dict)  # requests by outcome
    host: Mapping[str, int] = field(
        default_factory=dict
    )  # bytes in host memory of weights that left, by unit
    host_limit: int = 0
    catalog: CatalogView = CatalogView()
    acted: int = 0  # grows with each act of an operator that begins or ends
    recorder: RecorderView = field(default_factory=RecorderView)

    @property
    def thrashing(self) -> bool:
        """Whether units turn each other out, over and over."""
        return any(r.thrashing for model in self.models for r in model.residencies)
