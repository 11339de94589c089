"""How much more a server can carry, and what breaks first. Runs the twin."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from engine.requests import ServiceClass
from replay import knee as knees
from replay.atonce import Calls, in_turn
from replay.groups import Group, groups
from replay.knee import Knee
from replay.most import GREATEST, Most, busiest, factor, guess, most_by
from replay.peaks import DECISIVE, peak, peaks
from replay.ramp import Dwell
from replay.scaling import Method
from replay.sweeps import Judged, first_rate, sweep
from replay.twin.results import Results
from replay.twin.server import Server
from replay.twin.traffic import Traffic
from replay.twin.twin import simulate

SWEEPS = 3
"""A knee is the median of so many: one sweep alone may be off by half."""

ENOUGH = 2.0
"""The redundancy that is asked for."""

FIRST = 0.5
"""Of about the most that holds, where a ramp begins."""

WINDOWS = (0.5, 1.0, 2.0)
"""Times the window that there is, of which it is said what they would do."""


@dataclass(frozen=True, slots=True)
class ModelKnee:
    """One model and class in the sweep of all."""

    unit: str
    service_class: ServiceClass
    share: float
    """Of all requests."""
    knee: Knee
    """At the rate of all models together."""

    @property
    def rate(self) -> float | None:
        """Its own requests a second at its knee."""
        return None if self.knee.knee_slo is None else self.knee.knee_slo * self.share


@dataclass(frozen=True, slots=True)
class Point:
    """One step of a sweep, as a curve shows it."""

    sweep: int
    offered: float
    served: float
    p99: float
    """In targets, of the model and class that is worst; inf when more than one in a hundred had no answer."""
    holds: bool


@dataclass(frozen=True, slots=True)
class Use:
    """What one model took while the traffic was as it was."""

    unit: str
    rate: float
    """Answered, per second."""
    busy: float
    """Share of all slots' time."""
    peak_bytes: int
    """Weights, batches and sequences, on the device where they were most."""
    loads: int


@dataclass(frozen=True, slots=True)
class Capacity:
    peaks: dict[float, float]
    """Requests a second, by window; of those that are no longer than the traffic."""
    rate: float
    knee: Knee
    """Of the instance: the lowest rate of all at which any group fails."""
    fails_first: Group | None
    """At the first step above the knee."""
    models: tuple[ModelKnee, ...]
    most: tuple[Most, ...]
    """By method, the least first."""
    base: tuple[Group, ...]
    """The traffic as it was."""
    uses: tuple[Use, ...]
    curve: tuple[Point, ...]
    """Of all sweeps, by rate."""
    windows: dict[float, float]
    """The worst p99 of the busiest period, in targets, by times the batching window."""
    results: Results
    """Of the traffic as it was."""
    seed: int

    @property
    def carrying_limit(self) -> float | None:
        """Requests a second that may be relied on."""
        return self.knee.knee_slo

    @property
    def knee_ratios(self) -> dict[float, float]:
        """Knee over peak, by the peak's window."""
        limit = self.knee.knee_slo
        return {} if limit is None else {window: limit / peak for window, peak in self.peaks.items()}

    @property
    def redundancy(self) -> float:
        """The smaller of knee over the peak of a minute, and k*."""
        ratio = self.knee_ratios.get(DECISIVE, float("inf"))
        return min(ratio, self.most[0].k)

    @property
    def enough(self) -> bool:
        return self.redundancy >= ENOUGH


def measure(
    server: Server,
    traffic: Traffic,
    seed: int = 0,
    dwell: Dwell | None = None,
    calls: Calls = in_turn,
    known: Results | None = None,
) -> Capacity:
    """All of it. `traffic` should be the busiest hour or day of a recording; `known` is the run of it as it
    is, where somebody has it."""
    period = busiest(traffic)
    whole = iter([known]) if known is not None else calls(simulate, [(server, traffic, seed)])
    worst = calls(_worst, [(server, period, window, seed) for window in WINDOWS])
    near = guess(server, period, seed)
    first, results = FIRST * factor(near) * period.trace.rate, None
    if near >= GREATEST:  # nothing failed, or there was too little to judge by
        results = next(whole)
        first = first_rate(server, traffic, results)
    swept = calls(sweep, [(server, traffic, first, seed + n, dwell) for n in range(SWEEPS)])
    tried = calls(most_by, [(server, period, method, seed, near) for method in Method])
    results, sweeps = next(whole) if results is None else results, list(swept)
    knee = knees.find(sweeps, 1.0, seed)
    return Capacity(
        peaks={w: p for w, p in peaks(traffic.trace.arrived).items() if w <= max(traffic.trace.span, 1.0)},
        rate=traffic.trace.rate,
        knee=replace(knee, saturation=_most_served(knee.saturation, sweeps, results)),
        fails_first=_fails_first(sweeps),
        models=tuple(_models(sweeps, server, seed)),
        most=tuple(sorted(tried, key=lambda one: one.k)),
        base=tuple(groups(results, server)),
        uses=tuple(_uses(results, server)),
        curve=tuple(_curve(sweeps)),
        windows=dict(zip(WINDOWS, worst, strict=True)),
        results=results,
        seed=seed,
    )


def _most_served(found: float | None, sweeps: Sequence[Sequence[Judged]], results: Results) -> float | None:
    """Saturation is no less than what was served of the traffic as it was in as long as a step."""
    if found is None:
        return None
    answers = results.answers
    ends = np.sort((answers.arrived + answers.latency)[answers.answered])
    longest = max(step.end - step.begin for sweep in sweeps for step in sweep)
    return max(found, peak(ends, min(longest, results.span)))


def _worst(server: Server, period: Traffic, window: float, seed: int) -> float:
    """p99 in targets, of the group that is worst, were the batching window so many times as long."""
    rules = replace(server.scheduling, window_share=server.scheduling.window_share * window)
    other = replace(server, scheduling=rules)
    return max((g.excess for g in groups(simulate(other, period, seed), other) if g.judged), default=0.0)


def _fails_first(sweeps: Sequence[Sequence[Judged]]) -> Group | None:
    """Who failed at the lowest rate of all sweeps."""
    failed = [each for sweep in sweeps for each in sweep if each.worst is not None]
    return min(failed, key=lambda each: each.offered).worst if failed else None


def _curve(sweeps: Sequence[Sequence[Judged]]) -> list[Point]:
    found = [
        Point(number, step.offered, step.served, step.p99, step.passes(1.0))
        for number, sweep in enumerate(sweeps)
        for step in sweep
    ]
    return sorted(found, key=lambda point: (point.offered, point.sweep))


def _models(sweeps: Sequence[Sequence[Judged]], server: Server, seed: int) -> Iterator[ModelKnee]:
    keys = dict.fromkeys(key for sweep in sweeps for each in sweep for key in each.parts)
    count = sum(len(each) for sweep in sweeps for each in sweep)
    for key in keys:
        unit, service_class = key
        own = [[each.parts[key] for each in sweep if key in each.parts] for sweep in sweeps]
        had = sum(len(part) for parts in own for part in parts)
        target = server.target(unit, service_class)
        yield ModelKnee(unit, service_class, had / count, knees.find([o for o in own if o], target, seed))


def _uses(results: Results, server: Server) -> Iterator[Use]:
    slots = sum(card.slots for card in server.cards)
    span = max(results.span, 1e-9)
    answers = results.answers
    for unit in answers.models:
        answered = int((answers.asked(unit) & answers.answered).sum())
        busy = sum(seconds for (name, _), seconds in results.busy.items() if name == unit)
        held = [size for (name, _), size in results.peaks.units.items() if name == unit]
        yield Use(unit, answered / span, busy / span / slots, max(held, default=0), results.swaps(unit))
