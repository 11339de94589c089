"""A closer look than the view's, for whoever looks at one thing. Copies; nobody may act on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import anyio

from engine.devices.device import Device
from engine.journal import Journal, model_of
from engine.memory.custody import Custody
from engine.memory.outlook import Leaving
from engine.requests import ServiceClass
from engine.scheduling.dispatch import Dispatch
from engine.scheduling.effects import Batch
from engine.scheduling.standing import Standing
from engine.units import Units


@dataclass(frozen=True, slots=True)
class LaneView:
    """What waits for one unit. `slack`: seconds until its first job is due, below zero when it is late."""

    unit: str
    model: str
    jobs: int
    cost: int
    oldest: float
    slack: float
    by_class: tuple[tuple[str, int], ...]
    """Service class and jobs, the most urgent first."""


@dataclass(frozen=True, slots=True)
class BatchView:
    """A batch that runs now."""

    id: int
    unit: str
    device: str
    slot: str
    jobs: int
    requests: int
    cost: int
    max_cost: int
    service_class: str
    running: float
    predicted: float
    generative: bool


@dataclass(frozen=True, slots=True)
class UnitView:
    """What is known of a unit beside where it is."""

    unit: str
    weights_bytes: int | None
    """None until it was looked at."""
    kv_bytes_per_token: int
    reload_seconds: float | None
    """What it took to come, the last time; None while it never came."""
    weight: float
    max_batch_cost: int | None
    curve: tuple[tuple[float, float], ...]
    """Learned run times on the device where most is known: cost, seconds."""


class Closely:
    def __init__(
        self,
        *,
        units: Units,
        dispatch: Dispatch,
        custody: Custody,
        journal: Journal,
        devices: Sequence[Device],
    ) -> None:
        self.journal = journal
        self._units = units
        self._dispatch = dispatch
        self._custody = custody
        self._devices = tuple(device.name for device in devices)

    def lanes(self) -> list[LaneView]:
        """Those where something waits, the one due first at the head."""
        now, found = anyio.current_time(), []
        for unit, lane in self._dispatch.lanes.items():
            head = lane.head()
            if head is None:
                continue
            waits = [(c.name.lower(), n) for c in ServiceClass if (n := lane.count(c))]
            found.append(
                LaneView(
                    unit=unit,
                    model=model_of(unit),
                    jobs=len(lane),
                    cost=lane.cost,
                    oldest=now - lane.oldest_arrival(),
                    slack=head.due - now,
                    by_class=tuple(waits),
                )
            )
        return sorted(found, key=lambda lane: lane.slack)

    def batches(self) -> list[BatchView]:
        """Those that run, the longest first."""
        now = anyio.current_time()
        running = sorted(self._dispatch.running.values(), key=lambda batch: batch.started)
        return [_batch(batch, now) for batch in running]

    def next_up(self, device: str) -> list[Standing]:
        """Which lanes it would serve, in which order, and why. Nothing for a device that is none."""
        return self._dispatch.next_up(device, anyio.current_time()) if device in self._devices else []

    def leaving(self, device: str) -> list[Leaving]:
        """Who may be evicted, the first to leave first."""
        return self._custody.leaving_order(device, anyio.current_time()) if device in self._devices else []

    def would_leave(self, device: str, size_bytes: int) -> list[Leaving] | None:
        """Who would, if so many bytes had to come free now; None when all that may do not suffice."""
        if device not in self._devices:
            return None
        return self._custody.would_leave(device, size_bytes, anyio.current_time())

    def ledger(self, device: str) -> list[tuple[str, str, int]]:
        """Line, owner and bytes, the largest first."""
        ledger = self._custody.held.ledgers.get(device)
        entries = [] if ledger is None else [(str(line), owner, size) for line, owner, size in ledger]
        return sorted(entries, key=lambda entry: -entry[2])

    def displaced(self, unit: str) -> tuple[str, ...]:
        """Units that would not fit any more beside what is pinned, if this one were pinned too."""
        serving = self._units.serving(unit) if self._units.serves(unit) else unit
        return self._custody.price(serving, anyio.current_time()).displaced

    def unit(self, unit: str) -> UnitView:
        """A unit that the catalogue makes. Raises UnknownModel."""
        serving = self._units.serving(unit)
        held, facts = self._custody.held, self._units.facts(serving)
        footprint = held.footprints.get(serving)
        came = [r.reload_seconds for r in held.residents.values() if r.unit == serving and r.load_seconds]
        curves = [c for (of, _), c in self._dispatch.sizing.curves.items() if of == serving and c]
        points = max((curve.points() for curve in curves), key=len, default={})
        return UnitView(
            unit=serving,
            weights_bytes=footprint.weights_bytes if footprint else None,
            kv_bytes_per_token=footprint.kv_bytes_per_token if footprint else 0,
            reload_seconds=min(came, default=None),
            weight=facts.weight,
            max_batch_cost=facts.max_batch_cost if facts.max_batch_cost < 1 << 62 else None,
            curve=tuple((cost, seconds) for cost, seconds, _ in points.values()),
        )


def _batch(batch: Batch, now: float) -> BatchView:
    lease = batch.run.lease
    return BatchView(
        id=batch.run.id,
        unit=lease.unit,
        device=lease.device,
        slot=lease.slot,
        jobs=len(batch.jobs) + len(batch.run.running),
        requests=len({job.request for job in batch.jobs}),
        cost=batch.cost,
        max_cost=lease.max_cost,
        service_class=batch.service_class.name.lower(),
        running=now - batch.started,
        predicted=batch.predicted,
        generative=batch.run.generative,
    )
