"""Two runs of the twin side by side: what changes for each model, and what a pin costs the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from replay.atonce import Calls, in_turn
from replay.groups import Group, first_to_fail, groups
from replay.twin.results import Results
from replay.twin.server import Server
from replay.twin.traffic import Traffic
from replay.twin.twin import simulate

HURT = 1.1
"""A model is hurt when its p99 is so many times what it was."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One model and class before and after; either may be missing."""

    before: Group | None
    after: Group | None
    loads_before: int
    loads_after: int

    @property
    def name(self) -> str:
        group = self.after or self.before
        assert group is not None
        return group.name


@dataclass(frozen=True, slots=True)
class PinPrice:
    """What a pin gives its own model and takes from the others, against the same server without it."""

    unit: str
    own_cold: tuple[float, float]
    """Share of its requests that found it absent: without the pin, and with it."""
    others_cold: tuple[float, float]
    late: tuple[int, int]
    """Requests of all models that missed their target, without and with."""
    hurt: tuple[str, ...]
    """Whose p99 rises by a tenth or more."""


@dataclass(frozen=True, slots=True)
class Comparison:
    differences: tuple[Difference, ...]
    fails: Group | None
    """What fails first as the traffic is; None where nothing does."""
    unserved: tuple[Group, ...]
    """Of which nothing at all is answered as the traffic is; those too few to be judged only where that is
    all of it."""
    prices: tuple[PinPrice, ...]
    extrapolated: dict[str, int]
    beyond: bool
    """Whether these are so many that a p99 may be made of them."""
    notes: tuple[str, ...]


def compare(
    before: tuple[Server, Traffic],
    after: tuple[Server, Traffic],
    seed: int = 0,
    calls: Calls = in_turn,
) -> tuple[Comparison, Results]:
    without = [(_without(after[0], pin), after[1]) for pin in after[0].pins]
    was, now, *free = calls(simulate, [(*each, seed) for each in (before, after, *without)])
    old = {(g.unit, g.service_class): g for g in groups(was, before[0])}
    new = {(g.unit, g.service_class): g for g in groups(now, after[0])}
    differences = [
        Difference(old.get(key), new.get(key), was.swaps(key[0]), now.swaps(key[0]))
        for key in dict.fromkeys([*new, *old])
    ]
    prices = tuple(_prices(after[0], now, free))
    idle = {*after[0].pins} - {price.unit for price in prices}
    found = Comparison(
        differences=tuple(differences),
        fails=first_to_fail(list(new.values())),
        unserved=tuple(_unserved(list(new.values()))),
        prices=prices,
        extrapolated=now.extrapolated,
        beyond=now.beyond,
        notes=(*now.notes, *(f"the pin of {unit} changes nothing" for unit in sorted(idle))),
    )
    return found, now


def _without(server: Server, unit: str) -> Server:
    """The same without this pin: the recorded server, where the pin is all that was changed."""
    return replace(server, pins=tuple(pin for pin in server.pins if pin != unit))


def _same(one: Results, other: Results) -> bool:
    return np.array_equal(one.answers.latency, other.answers.latency)


def _unserved(found: list[Group]) -> Iterator[Group]:
    dead = [group for group in found if group.refused == 1]
    yield from dead if len(dead) == len(found) else (group for group in dead if group.judged)


def _prices(server: Server, pinned: Results, without: Sequence[Results]) -> Iterator[PinPrice]:
    """Of each pin that changes anything, the others staying as they are; `without` are the runs without
    each."""
    for unit, free in zip(server.pins, without, strict=True):
        if _same(free, pinned):
            continue
        yield PinPrice(
            unit=unit,
            own_cold=(_cold(free, unit, True), _cold(pinned, unit, True)),
            others_cold=(_cold(free, unit, False), _cold(pinned, unit, False)),
            late=(late(free, server), late(pinned, server)),
            hurt=tuple(_hurt(groups(free, server), groups(pinned, server), unit)),
        )


def late(results: Results, server: Server) -> int:
    """Requests that were not answered within their target."""
    return sum(round((1 - g.within) * g.requests) for g in groups(results, server))


def _cold(results: Results, unit: str, own: bool) -> float:
    asked = results.answers.asked(unit)
    rows = asked if own else ~asked
    return float(np.mean(results.answers.cold[rows])) if rows.any() else 0.0


def _hurt(free: list[Group], pinned: list[Group], unit: str) -> Iterator[str]:
    before = {(g.unit, g.service_class): g for g in free}
    for group in pinned:
        was = before.get((group.unit, group.service_class))
        if was is not None and group.judged and group.unit != unit and group.p99 > HURT * was.p99:
            yield group.name
