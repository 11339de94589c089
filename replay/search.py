"""Looking for a better server: the smallest cards that do, pins worth their bytes, windows and weights.

Every candidate is simulated; nothing is recommended by a rule of thumb.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from replay.groups import rows_by_group
from replay.most import fails
from replay.scaling import Method
from replay.twin.results import Results
from replay.twin.server import Server
from replay.twin.traffic import Traffic
from replay.twin.twin import simulate
from replay.whatif import Change

GIB = 2**30

SOLD = tuple(size * GIB for size in (8, 12, 16, 24, 32, 40, 48, 80, 96, 141, 192))
"""Memory of cards that can be had."""

HEADROOM = 0.2

MOST_CARDS = 8

CANDIDATES = 6
"""Models that a round of pins is tried with: those whose requests were late by most."""


@dataclass(frozen=True, slots=True)
class Fit:
    """So many cards of this memory carry the traffic multiplied, with a fifth of the memory free; and
    when there are several, the traffic as it is with one of them lost."""

    cards: int
    memory_bytes: int
    smaller: str
    """Why the next smaller memory does not do; empty when there is none."""

    @property
    def one_lost(self) -> bool:
        """Whether one may be lost."""
        return self.cards > 1


@dataclass(frozen=True, slots=True)
class PinStep:
    """One more pin: what it saves, and how much of that is taken from others."""

    unit: str
    saved: float
    """Seconds over target, of all requests together and weighed, that are no more."""
    per_gib: float
    taken: float
    """Seconds over target that other models' requests gain."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """A rule changed, and the seconds over target before and after."""

    change: str
    before: float
    after: float


def smallest(server: Server, period: Traffic, seed: int, k: float) -> Iterator[Fit]:
    """The smallest one card that carries `period` `k` times; and the fewest and smallest of which one may
    be lost."""
    for count in range(1, MOST_CARDS + 1):
        fit = _smallest(server, period, seed, k, count)
        if fit is not None:
            yield fit
        if fit is not None and fit.one_lost:
            return


def _smallest(server: Server, period: Traffic, seed: int, k: float, count: int) -> Fit | None:
    """By halving, as far as more memory is never worse."""
    traffic, sizes = period.scaled(k, Method.DUP, seed), _sizes(server)
    failed: dict[int, str] = {}
    low, high = 0, len(sizes)
    while low < high:
        middle = (low + high) // 2
        group = fails(_of(server, count, sizes[middle]), traffic, seed)
        lost = None
        if group is None and count > 1:
            lost = fails(_of(server, count - 1, sizes[middle]), period, seed)
        if group is None and lost is None:
            high = middle
        else:
            failed[middle] = str(group) if group is not None else f"{lost}, with one lost"
            low = middle + 1
    return None if low == len(sizes) else Fit(count, sizes[low], failed.get(low - 1, ""))


def _of(server: Server, cards: int, memory: int) -> Server:
    headroom = max(HEADROOM, server.headroom)
    return Change(vram=memory, devices=cards, headroom=headroom).server(server)


def _sizes(server: Server) -> Sequence[int]:
    if server.cards[0].kind == "cuda":
        return SOLD
    memory = server.cards[0].memory_bytes
    return [int(memory * 2 ** (n / 2)) for n in range(-8, 5)]


def pins(server: Server, traffic: Traffic, seed: int) -> list[PinStep]:
    """One pin after the other, each the one that saves most for its bytes; until none saves anything."""
    steps: list[PinStep] = []
    results = simulate(server, traffic, seed)
    while step := _next_pin(server, traffic, results, seed):
        steps.append(step)
        server = Change(pin=(step.unit,)).server(server)
        results = simulate(server, traffic, seed)
    return steps


def _next_pin(server: Server, traffic: Traffic, before: Results, seed: int) -> PinStep | None:
    over = excess(before, server)
    total = sum(over.values())
    found: list[PinStep] = []
    candidates = [unit for unit in over if unit not in server.pins and over[unit] > 0]
    for unit in sorted(candidates, key=lambda unit: -over[unit])[:CANDIDATES]:
        pinned = Change(pin=(unit,)).server(server)
        results = simulate(pinned, traffic, seed)
        if len(results.notes) > len(before.notes):
            continue  # it was refused: it does not fit beside the others and the headroom
        now = excess(results, server)
        saved = total - sum(now.values())
        taken = sum(max(0.0, now[other] - over[other]) for other in over if other != unit)
        size = server.units[unit].footprint.weights_bytes / GIB
        found.append(PinStep(unit, saved, saved / max(size, 1e-3), taken))
    best = max(found, key=lambda step: step.per_gib, default=None)
    return best if best is not None and best.saved > 0 else None


def tunings(server: Server, traffic: Traffic, seed: int) -> list[Tuning]:
    """Windows and weights that are better than those there are, the best first."""
    before = sum(excess(simulate(server, traffic, seed), server).values())
    share = server.scheduling.window_share
    changes: dict[str, Server] = {}
    for window in {0.0, share / 2, min(0.1, share * 2)} - {share}:
        changes[f"window_share = {window:g}"] = Change(window=window).server(server)
    over = excess(simulate(server, traffic, seed), server)
    for unit in sorted(over, key=lambda unit: -over[unit])[:3]:
        if over[unit] > 0:
            weight = server.units[unit].facts.weight * 2
            changes[f"weight of {unit} = {weight:g}"] = _weighed(server, unit, weight)
    found = [
        Tuning(told, before, sum(excess(simulate(other, traffic, seed), server).values()))
        for told, other in changes.items()
    ]
    return sorted((t for t in found if t.after < before), key=lambda t: t.after)


def _weighed(server: Server, unit: str, weight: float) -> Server:
    old = server.units[unit]
    units = {**server.units, unit: replace(old, facts=replace(old.facts, weight=weight))}
    return replace(server, units=units)


def excess(results: Results, server: Server) -> dict[str, float]:
    """Seconds by which answers came after their target, by model, in its weight; what was never answered
    counts as long as one may wait."""
    over: dict[str, float] = dict.fromkeys(results.answers.models, 0.0)
    for (unit, service_class), rows in rows_by_group(results.answers).items():
        target = server.target(unit, service_class)
        latency = np.minimum(results.answers.latency[rows], server.max_hold)
        weight = server.units[unit].facts.weight
        over[unit] += weight * float(np.maximum(0, latency - target).sum())
    return over
