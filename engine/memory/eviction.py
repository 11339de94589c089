"""Who leaves when memory is tight. Pure: facts in, names out."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from engine.memory import turns
from engine.memory.residency import Residency, Resident
from engine.memory.rules import EvictionPolicy, MemoryRules
from engine.memory.turns import Bid

MEMORY_SECONDS = 300.0
"""Demand fades to a third in this time."""

Relief = Callable[[Sequence[Resident]], int]
"""Bytes beyond their weights that need not be kept free any more when these have left."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What decides who leaves, beside the residents themselves."""

    rules: MemoryRules
    now: float
    wanted: Collection[str] = ()
    spare: Collection[tuple[str, str]] = ()
    """Copies, by unit and device, whose unit would be ready without them."""
    guarded: Collection[tuple[str, str]] = ()
    """Those that come last whatever their worth."""


def no_relief(leaving: Sequence[Resident]) -> int:
    return 0


def used(resident: Resident, now: float, uses: int = 1) -> None:
    """Count uses of `resident`, none when one ends now; what came before fades."""
    resident.demand = faded(resident, now) + uses
    resident.last_used = now


def faded(resident: Resident, now: float) -> float:
    """Recent demand as of `now`."""
    return resident.demand * math.exp((resident.last_used - now) / MEMORY_SECONDS)


def worth(resident: Resident, standing: Standing) -> float:
    """What keeping it is worth, by the policy; of a spare copy, as little as there is."""
    if resident.key in standing.spare and not at_work(resident, standing):
        return -1.0
    if standing.rules.policy is EvictionPolicy.LRU:
        return resident.last_used
    demand = faded(resident, standing.now)
    if standing.rules.policy is EvictionPolicy.LFU:
        return demand
    return demand * resident.reload_seconds / max(1, resident.footprint.weights_bytes)


def order(residents: Sequence[Resident], standing: Standing) -> list[Resident]:
    """Those that may leave, of least worth first, whether they have work at this moment or not: one that
    is much asked for is missed as soon as it has left."""

    def place(resident: Resident) -> tuple[bool, float, float]:
        return (resident.key in standing.guarded, worth(resident, standing), resident.last_used)

    def after_adapters(resident: Resident) -> tuple[tuple[bool, float, float], bool]:
        if not resident.adapters:
            return (place(resident), resident.base is None)
        return (max(map(place, (resident, *_staying(resident)))), True)

    return sorted((r for r in residents if may_leave(r)), key=after_adapters)


def may_leave(resident: Resident) -> bool:
    """Whether it could be asked to go: with its adapters, if it has any."""
    if resident.state is not Residency.READY or resident.pinned or resident.yielding:
        return False
    return not resident.adapters or all(map(may_leave, _staying(resident)))


def _staying(resident: Resident) -> list[Resident]:
    """Adapters of it that are there, or come, and do not leave already."""
    return [a for a in resident.adapters if a.resident and not a.yielding]


def at_work(resident: Resident, standing: Standing) -> bool:
    return resident.busy or resident.unit in standing.wanted


def choose(
    shortfall_bytes: int,
    residents: Sequence[Resident],
    standing: Standing,
    *,
    unwanted_only: bool,
    relief: Relief = no_relief,
) -> list[Resident] | None:
    """Whom to evict so that `shortfall_bytes` come free, least worth first; None when all do not suffice.

    Never a pinned unit, never one that loads or already leaves. With `unwanted_only` never one that is
    busy or has work waiting; others that are leave when their leases end.
    """
    if shortfall_bytes <= 0:
        return []
    going = order(residents, standing)
    if unwanted_only:
        going = [r for r in going if not at_work(r, standing)]
    going = [r for r in going if all(a in going for a in _staying(r))]

    def enough(leaving: Sequence[Resident]) -> bool:
        return _frees(leaving, shortfall_bytes, relief)

    if not enough(going):
        return None
    for count in range(1, len(going) + 1):
        if enough(going[:count]):
            return _without_needless(going[:count], enough)
    return None


def _frees(leaving: Sequence[Resident], size_bytes: int, relief: Relief) -> bool:
    weights = sum(r.held_bytes for r in leaving)
    return weights >= size_bytes or (bool(leaving) and weights + relief(leaving) >= size_bytes)


def victims(
    shortfall_bytes: int,
    bid: Bid,
    residents: Sequence[Resident],
    standing: Standing,
    relief: Relief = no_relief,
) -> list[Resident] | float:
    """Who leaves now for a claim; or, when it must wait, the time to look again (maybe inf).

    Those who have had their turn and those who are idle, and have been so for a share of what reloading
    them takes. Who was of late used for a more urgent class stays as long as others may do, and until the
    claim has waited for `max_cold_wait`.
    """
    guarded = [r for r in residents if turns.more_urgent(r, bid, standing.now)]
    others = [r for r in residents if r not in guarded]
    standing = replace(standing, guarded=[r.key for r in guarded])
    patient_until = turns.patient_until(bid, residents, standing.rules)
    ends = {r.key: _may_go_from(r, bid, patient_until, standing) for r in residents}
    for resident in guarded:
        ends[resident.key] = max(ends[resident.key], bid.since + standing.rules.max_cold_wait)
    if guarded and _might_do(bid, others):
        residents = others
    gone_by = [r for r in residents if ends[r.key] <= standing.now]
    leaving = choose(shortfall_bytes, gone_by, standing, unwanted_only=False, relief=relief)
    if leaving is not None:
        return leaving
    return min(
        (ends[r.key] for r in residents if may_leave(r) and ends[r.key] > standing.now), default=math.inf
    )


def _may_go_from(resident: Resident, bid: Bid, patient_until: float, standing: Standing) -> float:
    """The work of less urgent classes has its turn, but nobody is patient with it."""
    patience = bid.since if turns.less_urgent(resident, bid, standing.now) else patient_until
    in_turn = max(patience, turns.turn_ends(resident, standing.rules, bid.waiting))
    if at_work(resident, standing):
        return in_turn
    return min(in_turn, turns.lingers_until(resident, standing.rules))


def _might_do(bid: Bid, residents: Sequence[Resident]) -> bool:
    """Whether enough for this claim alone would come free if all of these left in their time."""
    return sum(r.held_bytes for r in residents if r.resident and not r.kept) >= bid.alone_bytes


def for_batch(
    shortfall_bytes: int, residents: Sequence[Resident], standing: Standing
) -> list[Resident] | float | None:
    """Who leaves so that a batch of another fits; or the time to look again; None when it never will.

    Those without work go at once, others when they have had their turn.
    """
    if choose(shortfall_bytes, residents, standing, unwanted_only=False) is None:
        return None
    rules, now = standing.rules, standing.now
    may_go = [r for r in residents if not at_work(r, standing) or turns.turn_ends(r, rules) <= now]
    leaving = choose(shortfall_bytes, may_go, standing, unwanted_only=False)
    return _next_turn(residents, rules, now) if leaving is None else leaving


def for_one_expected(
    shortfall_bytes: int, value: float, residents: Sequence[Resident], standing: Standing
) -> list[Resident] | None:
    """Who leaves for one that is only expected: who has no work, lingers no more and is worth less than
    `value`; None when those do not suffice."""
    colder = [
        r
        for r in residents
        if worth(r, standing) < value and turns.lingers_until(r, standing.rules) <= standing.now
    ]
    return choose(shortfall_bytes, colder, standing, unwanted_only=True)


def _next_turn(residents: Sequence[Resident], rules: MemoryRules, now: float) -> float:
    ends = [turns.turn_ends(r, rules) for r in residents if r.state is Residency.READY]
    return min((end for end in ends if end > now), default=math.inf)


def _without_needless(
    leaving: list[Resident], enough: Callable[[Sequence[Resident]], bool]
) -> list[Resident]:
    """A large one chosen late may make smaller ones chosen before it needless: those stay, but no adapter
    without its base."""
    for resident in reversed(leaving[:-1]):
        if resident.base in leaving:
            continue
        others = [r for r in leaving if r is not resident]
        if enough(others):
            leaving = others
    return leaving
