"""Rates and percentiles of what is counted, and the rings that charts read. Pure: times come in.

The only owner of the console's history. It is told to look once a second while somebody watches and once
a minute otherwise; what happened in between is in the counters that it reads.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.journal import GOOD, Journal, Tally
from engine.view import DeviceView, EngineView, ModelView
from web.console.rings import Series

MODEL = ("rate", "p50", "p99", "waiting", "busy", "bytes", "cost", "jobs")
"""Of a model: requests a second, seconds, seconds, jobs, slots, bytes, cost of a batch, jobs of a batch.

Busy is never more than there are slots: the time of a batch is told when it ends, however long it ran.
"""
SERVER = ("rate", "waiting", "busy")
DEVICE = ("used", "busy", "utilisation")

RATE_SECONDS = 10.0
WINDOW = 60.0
"""Seconds over which percentiles and shares are taken."""
MOST = 2000
"""Requests of one model that percentiles are taken of."""
FINE = 5.0
"""A look that comes later than this after the one before is too coarse for the fine ring."""


@dataclass(slots=True)
class Recent:
    """What one model did lately. Percentiles are seconds; None while nothing ended in the window."""

    rate: float = 0.0
    seconds: float = 0.0
    """Device-seconds in the window."""
    share: float | None = None
    """Of all models' device-seconds in the window."""
    p50: float | None = None
    p99: float | None = None
    past: deque[tuple[float, int, float]] = field(default_factory=lambda: deque(maxlen=64))
    ended: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=MOST))
    last: tuple[int, int, int, int, float] = (0, 0, 0, 0, 0.0)
    minute: tuple[int, int, int, int, float] = (0, 0, 0, 0, 0.0)


class Sampler:
    def __init__(self) -> None:
        self.models: dict[str, Recent] = {}
        self.rate = 0.0
        """Requests a second, of all models."""
        self.looked = 0.0
        """When the last sample was taken, in seconds since the epoch."""
        self.busy = 0.0
        """Slots that were busy on average since the look before."""
        self._series: dict[str, Series] = {}
        self._seen = 0
        self._past: deque[tuple[float, int]] = deque(maxlen=64)
        self._looked: float | None = None
        self._minute = 0.0
        self._spent: dict[str, float] = {}
        self._minute_ended = 0

    def look(self, now: float, wall: float, view: EngineView, journal: Journal) -> None:
        """`now` is the engine's clock, `wall` seconds since the epoch."""
        self._read(journal)
        took = None if self._looked is None else max(1e-3, now - self._looked)
        total = 0.0
        for name, tally in journal.models.items():
            recent = self.models.setdefault(name, Recent())
            if not recent.past and self._looked is not None:
                recent.past.append((self._looked, 0, 0.0))  # the look before found nothing of it
            _recall(recent, tally, now)
            total += recent.seconds
        for recent in self.models.values():
            recent.share = recent.seconds / total if total else None
        self._past.append((now, journal.ended))
        self.rate = _slope([(at, float(count)) for at, count in self._past], now, RATE_SECONDS)
        self.looked = wall
        if took is None:
            self._minute, self._minute_ended = now, journal.ended
        else:
            self._keep(now, wall, took, view, journal)
        self._looked = now

    def columns(self, name: str, fine: bool, since: float) -> list[list[float | None]]:
        """What charts draw: times and then each metric. Empty columns for what was never seen."""
        series = self._series.get(name)
        if series is None:
            return [[] for _ in range(1 + len(_metrics(name)))]
        return (series.fine if fine else series.coarse).columns(since)

    def _read(self, journal: Journal) -> None:
        """Take in the requests that ended since the last look, as far as they are remembered."""
        fresh = journal.ended - self._seen
        self._seen = journal.ended
        for done in reversed(list(journal.newest(fresh))):
            if done.outcome in GOOD:
                recent = self.models.setdefault(done.model, Recent())
                recent.ended.append((done.arrived + done.total_seconds, done.total_seconds))

    def _keep(self, now: float, wall: float, took: float, view: EngineView, journal: Journal) -> None:
        since = now - self._minute
        fine, coarse = took < FINE, since >= 60.0
        self._server(wall, view, took, fine)
        for device in view.devices:
            self._device(device, wall, took, fine, coarse)
        for model in view.models:
            recent = self.models.get(model.id)
            if recent is None and not model.residencies:
                continue
            recent = recent or self.models.setdefault(model.id, Recent())
            counts, slots = _counts(journal.models.get(model.id)), _slots(view)
            series = self._of(f"model:{model.id}", MODEL)
            if fine:
                series.second(wall, _values(model, recent, recent.last, counts, now, took, slots))
            if coarse:
                series.minute(wall, _values(model, recent, recent.minute, counts, now, since, slots))
                recent.minute = counts
            recent.last = counts
        if coarse:
            waiting = float(sum(model.waiting for model in view.models))
            ended = (journal.ended - self._minute_ended) / since
            self._of("server", SERVER).minute(wall, (ended, waiting, self.busy))
            self._minute, self._minute_ended = now, journal.ended

    def _server(self, wall: float, view: EngineView, took: float, fine: bool) -> None:
        spent = sum(device.busy_seconds for device in view.devices)
        self.busy = min(_slots(view), max(0.0, spent - self._spent.get("", spent)) / took)
        self._spent[""] = spent
        if fine:
            waiting = float(sum(model.waiting for model in view.models))
            self._of("server", SERVER).second(wall, (self._lately(), waiting, self.busy))

    def _lately(self) -> float:
        if len(self._past) < 2:
            return 0.0
        (before, had), (now, has) = self._past[-2], self._past[-1]
        return (has - had) / max(1e-3, now - before)

    def _device(self, device: DeviceView, wall: float, took: float, fine: bool, coarse: bool) -> None:
        spent = device.busy_seconds
        busy = min(device.slots, max(0.0, spent - self._spent.get(device.name, spent)) / took)
        self._spent[device.name] = spent
        values = (float(device.used_bytes), busy, busy / device.slots if device.slots else math.nan)
        series = self._of(f"device:{device.name}", DEVICE)
        if fine:
            series.second(wall, values)
        if coarse:
            series.minute(wall, values)

    def _of(self, name: str, metrics: Sequence[str]) -> Series:
        found = self._series.get(name)
        if found is None:
            found = self._series[name] = Series(len(metrics))
        return found


def _recall(recent: Recent, tally: Tally, now: float) -> None:
    recent.past.append((now, tally.ended, tally.seconds))
    recent.rate = _slope([(at, float(ended)) for at, ended, _ in recent.past], now, RATE_SECONDS)
    ended = recent.ended
    while ended and ended[0][0] < now - WINDOW:
        ended.popleft()
    inside = [(at, spent) for at, _, spent in recent.past if at >= now - WINDOW]
    recent.seconds = inside[-1][1] - inside[0][1] if len(inside) > 1 else 0.0
    taken = sorted(seconds for _, seconds in ended)
    recent.p50, recent.p99 = _percentile(taken, 0.5), _percentile(taken, 0.99)


def _slope(past: Sequence[tuple[float, float]], now: float, over: float) -> float:
    """Growth a second, over the last `over` seconds or since the look before them."""
    if len(past) < 2:
        return 0.0
    first = next((point for point in past if point[0] >= now - over), past[-2])
    if first is past[-1]:
        first = past[-2]
    return max(0.0, past[-1][1] - first[1]) / max(1e-3, past[-1][0] - first[0])


def _percentile(taken: Sequence[float], part: float) -> float | None:
    """The nearest rank."""
    return taken[max(0, math.ceil(part * len(taken)) - 1)] if taken else None


def _slots(view: EngineView) -> int:
    return sum(device.slots for device in view.devices)


def _counts(tally: Tally | None) -> tuple[int, int, int, int, float]:
    if tally is None:
        return (0, 0, 0, 0, 0.0)
    return (tally.ended, tally.batches, tally.jobs, tally.cost, tally.seconds)


def _values(
    model: ModelView,
    recent: Recent,
    before: tuple[int, int, int, int, float],
    counts: tuple[int, int, int, int, float],
    now: float,
    took: float,
    slots: int,
) -> tuple[float, ...]:
    """One sample in the order of `MODEL`: what happened since `before`."""
    ended, batches, jobs, cost, seconds = (c - b for c, b in zip(counts, before, strict=True))
    taken = sorted(spent for at, spent in recent.ended if at > now - took)
    p50, p99 = _percentile(taken, 0.5), _percentile(taken, 0.99)
    return (
        ended / took,
        math.nan if p50 is None else p50,
        math.nan if p99 is None else p99,
        float(model.waiting),
        min(slots, max(0.0, seconds) / took),
        float(sum(r.weights_bytes for r in model.residencies)),
        cost / batches if batches else math.nan,
        jobs / batches if batches else math.nan,
    )


def _metrics(name: str) -> Sequence[str]:
    kind = name.partition(":")[0]
    return {"model": MODEL, "device": DEVICE}.get(kind, SERVER)
