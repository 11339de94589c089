"""A ramp in the twin: all models together, at rising rates, with the recording's own bursts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from engine.requests import ServiceClass
from replay.groups import Group, groups, rows_by_group, step
from replay.ramp import Dwell, Ramp
from replay.steps import Step
from replay.twin.results import Results
from replay.twin.server import Server
from replay.twin.traffic import Traffic
from replay.twin.twin import simulate

WARM_UP = 0.15
"""Of a step's length, before what is counted."""

LOWEST = 16
"""Steps after which a ramp whose first step fails is begun no lower."""

MANY = 10_000
"""Requests of a step near the knee: twice what bounds a p99 well, where a rate brings them sooner than time
alone would tell."""

TARGETS = 20
"""Of the slowest class, that such a step lasts at least: a queue that grows shows by then."""

Key = tuple[str, ServiceClass]


@dataclass(frozen=True, slots=True)
class Judged(Step):
    """A step of all models together: its p99 is that of the worst group, in targets."""

    parts: dict[Key, Step] = field(default_factory=dict)
    found: dict[Key, Group] = field(default_factory=dict)
    """What each of `parts` met."""

    @property
    def targets(self) -> dict[Key, float]:
        return {key: group.target for key, group in self.found.items()}

    @property
    def worst(self) -> Group | None:
        """Who fails; the one farthest over its target, or else one whose queue grows."""
        over = [key for key, part in self.parts.items() if not part.passes(self.targets[key])]
        return max((self.found[key] for key in over), key=lambda group: group.excess, default=None)

    @property
    def p99(self) -> float:
        return max((part.p99 / self.targets[key] for key, part in self.parts.items()), default=0.0)

    def passes(self, target: float) -> bool:
        return self.p99 <= target and self.stable(target)

    def stable(self, target: float) -> bool:
        return all(part.stable(self.targets[key]) for key, part in self.parts.items())


def dwell_of(server: Server, traffic: Traffic) -> Dwell:
    """In the twin, with this traffic: by the clock where little comes, by requests where much does."""
    usual, trace = Dwell(), traffic.trace
    asked = np.unique(np.stack([trace.input_size, trace.service_class]), axis=1).T.tolist()
    slowest = max(server.target(traffic.shapes[row].unit, ServiceClass(each)) for row, each in asked)
    return replace(usual, many=MANY, least=min(usual.near, max(usual.least, TARGETS * slowest)))


def first_rate(server: Server, traffic: Traffic, base: Results) -> float:
    """About a third of what the slots could do if all of their time were run time."""
    slots = sum(card.slots for card in server.cards)
    busy = sum(base.busy.values()) / max(base.span, 1e-9) / slots
    return 0.3 * traffic.trace.rate / max(busy, 1e-3)


def sweep(
    server: Server, traffic: Traffic, first: float, seed: int, dwell: Dwell | None = None
) -> list[Judged]:
    """One ramp, from `first` or below it: from a rate at which all targets hold, if there is one."""
    dwell = dwell or dwell_of(server, traffic)
    ramp, number = Ramp(first, 1.0, dwell), 0
    while (asked := ramp.next()) is not None:
        rate, seconds = asked
        done = run_step(server, traffic, rate, seconds, seed * 1000 + number)
        number += 1
        ramp.observe(done)
        if len(ramp.steps) == 1 and not done.passes(1.0) and number < LOWEST:
            ramp = Ramp(rate / 2, 1.0, dwell)
    return [judged for judged in ramp.steps if isinstance(judged, Judged)]


def run_step(server: Server, traffic: Traffic, rate: float, seconds: float, seed: int) -> Judged:
    """The traffic's own bursts at this rate, for so long, after a warm-up."""
    warm = seconds * WARM_UP
    results = simulate(server, stretch(traffic, rate, seconds + warm, seed), seed)
    end = warm + seconds
    met = {(g.unit, g.service_class): g for g in groups(results, server, warm) if g.judged}
    answers = results.answers
    rows = rows_by_group(answers, warm)
    counted = np.flatnonzero(answers.arrived >= warm)
    return Judged(
        rate,
        warm,
        end,
        answers.arrived[counted],
        answers.latency[counted],
        parts={key: step(answers, rows[key], rate, warm, end) for key in met},
        found=met,
    )


def stretch(traffic: Traffic, rate: float, seconds: float, seed: int) -> Traffic:
    """As many requests in a row as come in so long at this rate, from anywhere in the trace and round its
    end, with time stretched to fit: so the bursts are those of the recording."""
    trace, count = traffic.trace, max(2, round(rate * seconds))
    first = int(np.random.default_rng(seed).integers(len(trace)))
    place = first + np.arange(count)
    rows, rounds = place % len(trace), place // len(trace)
    gap = trace.span / max(1, len(trace) - 1)
    times = trace.arrived[rows] + rounds * (trace.span + gap)
    times = times - times[0]
    times = times * (count / rate) / max(float(times[-1]), 1e-9)
    return replace(traffic, trace=replace(trace.take(rows), arrived=times))
