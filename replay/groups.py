"""Requests of one model and class against their target: who fails, by how much, at what stage. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from engine.requests import ServiceClass
from replay.answers import Answers
from replay.steps import TAIL, Step
from replay.trace import Floats, Ints
from replay.twin.results import Results
from replay.twin.server import Server
from replay.twin.traffic import Traffic
from replay.twin.tripwire import Tripwire

FEWEST = 20
"""Requests below which a group has no p99 to be judged by; how many are so few is said."""

REFUSED = "refused"

STAGES = ("prepare", "queue", "load", "run")

Target = Callable[[str, ServiceClass], float]
"""The p99 target of a model's class, in seconds."""


@dataclass(frozen=True, slots=True)
class Group:
    """What one model's requests of one class met. Times in seconds; shares from 0 to 1."""

    unit: str
    service_class: ServiceClass
    target: float
    requests: int
    p50: float
    p95: float
    p99: float
    """inf when more than one in a hundred was not answered."""
    within: float
    """Share that was answered within the target."""
    refused: float
    """Share that was never answered: refused, expired or failed."""
    degraded: float
    cold: float
    stages: dict[str, float]
    """Mean seconds of prepare, queue, load and run of what was answered."""
    stage: str
    """Where those that missed the target spent most of their time; of all, when none missed it."""

    @property
    def name(self) -> str:
        return f"{self.unit}, {self.service_class.name.lower()}"

    @property
    def judged(self) -> bool:
        return self.requests >= FEWEST

    @property
    def holds(self) -> bool:
        """Whether its p99 is within the target, or too few came to say."""
        return not self.judged or self.p99 <= self.target

    @property
    def excess(self) -> float:
        """p99 in targets."""
        return self.p99 / self.target

    def __str__(self) -> str:
        if math.isinf(self.p99):
            return f"{self.name}: {self.refused:.1%} were not answered ({self.stage})"
        return f"{self.name}: p99 {self.p99:.3g} s, target {self.target:g} s ({self.stage})"


def rows_by_group(answers: Answers, since: float = 0.0) -> dict[tuple[str, ServiceClass], Ints]:
    """Rows of each model and class that arrived at `since` or later."""
    counted = np.flatnonzero(answers.arrived >= since)
    key = answers.model[counted].astype(np.int64) * 8 + answers.service_class[counted]
    found = {}
    for each in np.unique(key).tolist():
        model, service_class = divmod(each, 8)
        found[answers.models[model], ServiceClass(service_class)] = counted[key == each]
    return found


def groups_of(answers: Answers, target: Target, since: float = 0.0) -> list[Group]:
    """The one farthest over its target first; those too few to be judged last."""
    found = [_group(answers, rows, *key, target(*key)) for key, rows in rows_by_group(answers, since).items()]
    return sorted(found, key=lambda group: (not group.judged, -group.excess, group.name))


def _group(answers: Answers, rows: Ints, model: str, service_class: ServiceClass, target: float) -> Group:
    latency = answers.latency[rows]
    answered = rows[np.isfinite(latency)]
    late = answered[answers.latency[answered] > target]
    spent = _spent(answers, late if len(late) else answered)
    stage = max(spent, key=lambda name: spent[name])
    if len(rows) - len(answered) > len(late):
        stage = REFUSED
    return Group(
        unit=model,
        service_class=service_class,
        target=target,
        requests=len(rows),
        p50=quantile(latency, 0.5),
        p95=quantile(latency, 0.95),
        p99=quantile(latency, TAIL),
        within=float((latency <= target).mean()),
        refused=1 - len(answered) / len(rows),
        degraded=float(answers.ended("degraded")[rows].mean()),
        cold=float(answers.cold[rows].mean()),
        stages=_spent(answers, answered),
        stage=stage,
    )


def _spent(answers: Answers, rows: Ints) -> dict[str, float]:
    """Mean seconds of each stage; 0 where nobody said."""
    found = {}
    for name in STAGES:
        told = getattr(answers, name)[rows]
        told = told[np.isfinite(told)]
        found[name] = float(told.mean()) if len(told) else 0.0
    return found


def groups(results: Results, server: Server, since: float = 0.0) -> list[Group]:
    """The same of a run of the twin."""
    return groups_of(results.answers, server.target, since)


def tripwire(traffic: Traffic, server: Server, since: float) -> Tripwire:
    """Trips when any group that can be judged has more late than a p99 allows."""
    trace = traffic.trace
    targets: dict[tuple[str, ServiceClass], float] = {}
    left: dict[tuple[str, ServiceClass], int] = {}
    units = [shape.unit for shape in traffic.shapes]
    counted = trace.arrived >= since
    rows = zip(trace.input_size[counted].tolist(), trace.service_class[counted].tolist(), strict=True)
    for (unit, service_class), count in Counter((units[row], c) for row, c in rows).items():
        if count >= FEWEST:
            key = (unit, ServiceClass(service_class))
            targets[key], left[key] = server.target(*key), count - math.ceil(TAIL * count)
    return Tripwire(since, targets, left)


def first_to_fail(found: list[Group]) -> Group | None:
    return next((group for group in found if not group.holds), None)


def quantile(latency: Floats, share: float) -> float:
    """The order statistic; inf counts as the slowest there is."""
    if not len(latency):
        return math.nan
    return float(np.sort(latency)[min(len(latency), math.ceil(share * len(latency))) - 1])


def step(answers: Answers, rows: Ints, offered: float, begin: float, end: float) -> Step:
    """These rows as a ramp's step."""
    return Step(offered, begin, end, answers.arrived[rows], answers.latency[rows])
