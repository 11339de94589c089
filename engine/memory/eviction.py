"""Who leaves when memory is tight. Pure: facts in, names out."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence

from engine.memory.residency import Residency, Resident
from engine.memory.rules import GROUPING, LINGER_SHARE, EvictionPolicy, MemoryRules

MEMORY_SECONDS = 300.0
"""Demand fades to a third in this time."""

Relief = Callable[[Sequence[Resident]], int]
"""Bytes beyond their weights that need not be kept free any more when these have left."""


def no_relief(leaving: Sequence[Resident]) -> int:
    return 0


def used(resident: Resident, now: float, uses: int = 1) -> None:
    """Count uses of `resident`, none when one ends now; what came before fades."""
    resident.demand = faded(resident, now) + uses
    resident.last_used = now


def faded(resident: Resident, now: float) -> float:
    """Recent demand as of `now`."""
    return resident.demand * math.exp((resident.last_used - now) / MEMORY_SECONDS)


def worth(resident: Resident, policy: EvictionPolicy, now: float) -> tuple[float, float]:
    """Sorts those that should go first to the front."""
    if policy is EvictionPolicy.LRU:
        return (resident.last_used, 0.0)
    if policy is EvictionPolicy.LFU:
        return (faded(resident, now), resident.last_used)
    weights = max(1, resident.footprint.weights_bytes)
    return (faded(resident, now) * resident.load_seconds / weights, resident.last_used)


def choose(
    shortfall_bytes: int,
    residents: Sequence[Resident],
    *,
    unwanted_only: bool,
    wanted: Collection[str],
    policy: EvictionPolicy,
    now: float,
    relief: Relief = no_relief,
) -> list[Resident] | None:
    """Whom to evict so that `shortfall_bytes` come free, least worth first; None when all do not suffice.

    Never a pinned unit, never one that loads or already leaves. With `unwanted_only` never one that is
    busy or has work waiting; otherwise those come last, and leave when their leases end.
    """
    if shortfall_bytes <= 0:
        return []
    free = [r for r in residents if r.state is Residency.READY and not r.pinned and not r.yielding]
    idle = [r for r in free if not r.busy and r.unit not in wanted]
    rest = [] if unwanted_only else [r for r in free if r not in idle]
    order = [
        *sorted(idle, key=lambda r: worth(r, policy, now)),
        *sorted(rest, key=lambda r: worth(r, policy, now)),
    ]

    def enough(leaving: Sequence[Resident]) -> bool:
        return sum(r.held_bytes for r in leaving) + relief(leaving) >= shortfall_bytes

    for count in range(1, len(order) + 1):
        if enough(order[:count]):
            return _without_needless(order[:count], enough)
    return None


def victims(
    shortfall_bytes: int,
    since: float,
    residents: Sequence[Resident],
    *,
    wanted: Collection[str],
    rules: MemoryRules,
    now: float,
    relief: Relief = no_relief,
) -> list[Resident] | float:
    """Who leaves now for a claim made at `since`; or, when it must wait, the time to look again (maybe inf).

    At first only those that are idle and have been so for a share of what reloading them takes. A claim
    that has waited long enough for the work of others to be worth a change of places takes any that is
    not pinned and has been there for its least time: its jobs then wait for the reload.
    """
    settled, look_again = [], math.inf
    for resident in residents:
        stays_until = resident.last_used + min(rules.min_residency, resident.load_seconds * LINGER_SHARE)
        if stays_until <= now:
            settled.append(resident)
        elif resident.state is Residency.READY and not resident.busy:
            look_again = min(look_again, stays_until)

    def chosen(among: Sequence[Resident], unwanted_only: bool) -> list[Resident] | None:
        return choose(
            shortfall_bytes,
            among,
            unwanted_only=unwanted_only,
            wanted=wanted,
            policy=rules.policy,
            now=now,
            relief=relief,
        )

    idle = chosen(settled, True)
    if idle is not None:
        return idle
    slowest = max((r.load_seconds for r in residents), default=0.0)
    patient_until = since + min(rules.max_cold_wait, _turn(slowest))
    if now < patient_until:
        return min(look_again, patient_until)
    anyone = chosen([r for r in residents if turn_ends(r, rules) <= now], False)
    return _next_turn(residents, rules, now) if anyone is None else anyone


def for_batch(
    shortfall_bytes: int,
    residents: Sequence[Resident],
    *,
    wanted: Collection[str],
    rules: MemoryRules,
    now: float,
) -> list[Resident] | float | None:
    """Who leaves so that a batch of another fits; or the time to look again; None when it never will.

    Those without work go at once, others when they have had their turn.
    """

    def chosen(among: Sequence[Resident]) -> list[Resident] | None:
        return choose(
            shortfall_bytes, among, unwanted_only=False, wanted=wanted, policy=rules.policy, now=now
        )

    if chosen(residents) is None:
        return None
    idle = [r for r in residents if not r.busy and r.unit not in wanted]
    leaving = chosen([r for r in residents if r in idle or turn_ends(r, rules) <= now])
    return _next_turn(residents, rules, now) if leaving is None else leaving


def turn_ends(resident: Resident, rules: MemoryRules) -> float:
    """Until when one that has come keeps its place if it has work: or those who cannot be there together
    would turn each other out before any work is done."""
    return resident.since + min(rules.min_residency, _turn(resident.load_seconds))


def _turn(load_seconds: float) -> float:
    return max(0.1, 2 * GROUPING * load_seconds)


def _next_turn(residents: Sequence[Resident], rules: MemoryRules, now: float) -> float:
    ends = [turn_ends(r, rules) for r in residents if r.state is Residency.READY]
    return min((end for end in ends if end > now), default=math.inf)


def _without_needless(
    leaving: list[Resident], enough: Callable[[Sequence[Resident]], bool]
) -> list[Resident]:
    """A large one chosen late may make smaller ones chosen before it needless: those stay."""
    for resident in reversed(leaving[:-1]):
        others = [r for r in leaving if r is not resident]
        if enough(others):
            leaving = others
    return leaving
