"""Looking for a better server: the smallest cards that do, pins worth their bytes, windows and weights.

Every candidate is simulated; nothing is recommended by a rule of thumb.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from replay.atonce import Calls, in_turn
from replay.groups import rows_by_group
from replay.most import busiest, fails
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

TOGETHER = 2
"""Numbers of cards that are tried at once."""

CANDIDATES = 6
"""Models that a round of pins is tried with: those whose requests were late by most."""

FINALISTS = 2
"""Of the candidates, that are tried with all of the traffic."""

WEIGHED = 3
"""Models of which twice the weight is tried."""


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


@dataclass(frozen=True, slots=True)
class Over:
    """How late requests were in one run."""

    seconds: dict[str, float]
    """Over target, by model, weighed."""
    refused: int
    """Acts, as pins, that were refused."""

    @property
    def total(self) -> float:
        return sum(self.seconds.values())


def smallest(server: Server, period: Traffic, seed: int, k: float, calls: Calls = in_turn) -> Iterator[Fit]:
    """The smallest one card that carries `period` `k` times; and the fewest and smallest of which one may
    be lost."""
    for count in range(1, MOST_CARDS + 1, TOGETHER):
        counts = range(count, count + TOGETHER)
        for fit in calls(_smallest, [(server, period, seed, k, cards) for cards in counts]):
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


def pins(server: Server, traffic: Traffic, seed: int, calls: Calls = in_turn) -> list[PinStep]:
    """One pin after the other, each the one that saves most for its bytes; until none saves anything."""
    steps: list[PinStep] = []
    known = _over(server, traffic, seed)
    while found := _next_pin(server, traffic, known, seed, calls):
        step, known = found
        steps.append(step)
        server = Change(pin=(step.unit,)).server(server)
    return steps


def _next_pin(
    server: Server, traffic: Traffic, known: Over, seed: int, calls: Calls
) -> tuple[PinStep, Over] | None:
    """The best one and how late requests are with it. Where there are many, the busiest minutes say which
    are worth a run of the whole."""
    late = [unit for unit in known.seconds if unit not in server.pins and known.seconds[unit] > 0]
    units = sorted(late, key=lambda unit: -known.seconds[unit])[:CANDIDATES]
    short = busiest(traffic)
    if len(units) > FINALISTS and len(short) < len(traffic) / 2:
        before = _over(server, short, seed)
        units = [step.unit for step, _ in _tried(server, units, short, before, seed, calls)][:FINALISTS]
    found = _tried(server, units, traffic, known, seed, calls)
    return found[0] if found and found[0][0].saved > 0 else None


def _tried(
    server: Server, units: Sequence[str], traffic: Traffic, before: Over, seed: int, calls: Calls
) -> list[tuple[PinStep, Over]]:
    """Each of these pinned, and how late requests are then: the best one first."""
    found: list[tuple[PinStep, Over]] = []
    servers = [Change(pin=(unit,)).server(server) for unit in units]
    for unit, now in zip(units, calls(_over, [(each, traffic, seed) for each in servers]), strict=True):
        if now.refused > before.refused:
            continue  # it does not fit beside the others and the headroom
        saved = before.total - now.total
        pairs = [(now.seconds[other], before.seconds[other]) for other in now.seconds if other != unit]
        taken = sum(max(0.0, later - earlier) for later, earlier in pairs)
        size = server.units[unit].footprint.weights_bytes / GIB
        found.append((PinStep(unit, saved, saved / max(size, 1e-3), taken), now))
    return sorted(found, key=lambda each: -each[0].per_gib)


def tunings(server: Server, traffic: Traffic, seed: int, calls: Calls = in_turn) -> list[Tuning]:
    """Windows and weights that are better than those there are, the best first. All are tried with the
    busiest minutes, and the best of them with the whole."""
    now = _over(server, traffic, seed)
    changes = dict(_changes(server, now))
    short = busiest(traffic)
    if len(changes) > FINALISTS and len(short) < len(traffic) / 2:
        best = _better(server, changes, short, _over(server, short, seed), seed, calls)[:FINALISTS]
        changes = {each.change: changes[each.change] for each in best}
    return _better(server, changes, traffic, now, seed, calls)


def _changes(server: Server, now: Over) -> Iterator[tuple[str, Server]]:
    share = server.scheduling.window_share
    for window in sorted({0.0, share / 2, min(0.1, share * 2)} - {share}):
        yield f"window_share = {window:g}", Change(window=window).server(server)
    for unit in sorted(now.seconds, key=lambda unit: -now.seconds[unit])[:WEIGHED]:
        if now.seconds[unit] > 0:
            weight = server.units[unit].facts.weight * 2
            yield f"weight of {unit} = {weight:g}", _weighed(server, unit, weight)


def _better(
    server: Server, changes: Mapping[str, Server], traffic: Traffic, now: Over, seed: int, calls: Calls
) -> list[Tuning]:
    """Those by which fewer seconds are over target, in the weights that there are; the best first."""
    runs = calls(_over, [(other, traffic, seed, server) for other in changes.values()])
    found = [Tuning(told, now.total, then.total) for told, then in zip(changes, runs, strict=True)]
    return sorted((t for t in found if t.after < t.before), key=lambda t: t.after)


def _weighed(server: Server, unit: str, weight: float) -> Server:
    old = server.units[unit]
    units = {**server.units, unit: replace(old, facts=replace(old.facts, weight=weight))}
    return replace(server, units=units)


def _over(server: Server, traffic: Traffic, seed: int, judged_by: Server | None = None) -> Over:
    """By the weights of `judged_by`, where the server's own are what is tried."""
    results = simulate(server, traffic, seed)
    return Over(excess(results, judged_by or server), len(results.notes))


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
