"""k*: how many times the busiest period may be multiplied with every target met. Runs the twin."""

from __future__ import annotations

from dataclasses import dataclass

from replay.groups import Group, groups, tripwire
from replay.peaks import when
from replay.scaling import Method
from replay.sweeps import WARM_UP
from replay.twin.server import Server
from replay.twin.traffic import Traffic
from replay.twin.twin import Twin

PERIOD = 600.0
"""Seconds of the busiest traffic that k* multiplies."""

CLOSE = 1.05
"""k* is found to within this ratio."""

MOST = 64.0


@dataclass(frozen=True, slots=True)
class Most:
    """k*: the most times that the busiest period may be multiplied with every target met."""

    method: Method
    k: float
    beyond: Group | None
    """What fails just above it; None where nothing did up to the largest that was tried."""


def busiest(traffic: Traffic, seconds: float = PERIOD) -> Traffic:
    """The period in which most arrives."""
    begin = when(traffic.trace.arrived, seconds)
    return traffic.between(begin, begin + seconds)


def most(server: Server, period: Traffic, seed: int) -> list[Most]:
    """k* by every method of scaling, the least first."""
    found = [most_by(server, period, method, seed) for method in Method]
    return sorted(found, key=lambda one: one.k)


def most_by(server: Server, period: Traffic, method: Method, seed: int) -> Most:
    """By one method: doubled until a target is missed, then halved in between."""

    def failing(k: float) -> Group | None:
        return fails(server, period.scaled(k, method, seed), seed)

    low, high, beyond = 0.0, 1.0, failing(1.0)
    while beyond is None and high < MOST:
        low, high = high, high * 2
        beyond = failing(high)
    if beyond is None:
        return Most(method, high, None)
    while low == 0.0 and high > 1 / MOST:
        if (failed := failing(high / 2)) is None:
            low = high / 2
        else:
            high, beyond = high / 2, failed
    while low and high / low > CLOSE:
        middle = (low * high) ** 0.5
        if (failed := failing(middle)) is None:
            low = middle
        else:
            high, beyond = middle, failed
    return Most(method, low, beyond)


def fails(server: Server, traffic: Traffic, seed: int) -> Group | None:
    """The first group of which too many are late, or None. Ends as soon as that is certain."""
    since = traffic.trace.span * WARM_UP
    wire = tripwire(traffic, server, since)
    results = Twin(server, traffic, seed, tripwire=wire).run()
    if wire.tripped is None:
        return None
    found = groups(results, server, since)
    return next(group for group in found if (group.unit, group.service_class) == wire.tripped)
