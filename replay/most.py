"""k*: how many times the busiest period may be multiplied with every target met. Runs the twin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from replay.groups import Group, groups, tripwire
from replay.peaks import when
from replay.scaling import Method
from replay.sweeps import WARM_UP
from replay.trace import BadTrace
from replay.twin.server import Server
from replay.twin.traffic import Traffic
from replay.twin.twin import Twin

PERIOD = 600.0
"""Seconds of the busiest traffic that k* multiplies."""

SLICE = 120.0
"""Seconds, the busiest of that, by which it is guessed about where to look."""

PER_OCTAVE = 16
"""Factors that are tried from one to its double: 4.4 % apart, and the same ones whatever is known before."""

LEAST, GREATEST = -6 * PER_OCTAVE, 4 * PER_OCTAVE
"""From a 64th to 16 times: who carries that needs no larger answer, and each doubling costs one."""

COARSE = 4
"""Of a slice every fourth factor is tried."""

STRIDE = 4
"""Rungs of the first step up or down; the next one is twice as long."""

DOUBT = 4
"""Rungs over which luck may decide whether one holds: about a fifth."""

Failing = Callable[[int], Group | None]


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


def most_by(server: Server, period: Traffic, method: Method, seed: int, near: int | None = None) -> Most:
    """By one method. It is looked for from the rung `near` on, which makes it sooner found, not another."""
    ladder = Ladder(partial(_failing, server, period, method, seed), LEAST, GREATEST)
    holds = ladder.limit(guess(server, period, seed) if near is None else near)
    return Most(method, 0.0 if holds < LEAST else factor(holds), ladder.beyond(holds))


def guess(server: Server, period: Traffic, seed: int) -> int:
    """About the rung that holds, by the busiest minutes of the period and every few rungs."""
    failing = partial(_failing, server, busiest(period, SLICE), Method.WARP, seed, apart=COARSE)
    ladder = Ladder(failing, LEAST // COARSE, GREATEST // COARSE)
    return max(LEAST, ladder.edge(0, ladder.greatest + 1)[0] * COARSE)


def _failing(
    server: Server, part: Traffic, method: Method, seed: int, place: int, apart: int = 1
) -> Group | None:
    try:
        traffic = part.scaled(factor(place * apart), method, seed)
    except BadTrace:  # so small a part of so little is nothing
        return None
    return fails(server, traffic, seed)


def factor(place: int) -> float:
    return float(2 ** (place / PER_OCTAVE))


@dataclass(slots=True)
class Ladder:
    """Rungs of which the low ones hold and the high ones fail, with some doubt in between.

    The limit is the rung below the lowest two neighbours that both fail: one that fails alone had bad luck.
    It is the same wherever one begins, as long as all rungs fail from `DOUBT` above that on, and some do.
    """

    failing: Failing
    least: int
    greatest: int
    _known: dict[int, Group | None] = field(default_factory=dict)

    def limit(self, start: int) -> int:
        """The highest rung that holds below those that fail; one below the least where there is none."""
        lost = self.greatest + 1
        while True:
            low, high = self.edge(start, lost)
            if high < lost and not self._lost(high):
                start = high + 1
                continue
            if low == self.greatest:
                return low
            lost = high
            below = range(max(self.least, high - DOUBT), high - 1)
            lower = next((place for place in below if self._lost(place)), None)
            if lower is None:
                return low
            start = lost = lower

    def edge(self, start: int, lost: int) -> tuple[int, int]:
        """A rung that holds and the next one, which fails; none at or above `lost` is looked at."""
        low, high = self._around(start, lost)
        while high - low > 1:
            middle = (low + high) // 2
            if self._fails(middle):
                high = middle
            else:
                low = middle
        return low, high

    def beyond(self, limit: int) -> Group | None:
        """Who fails on the rung above."""
        return self._group(limit + 1) if limit < self.greatest else None

    def _around(self, start: int, lost: int) -> tuple[int, int]:
        """One that holds and one above it that fails, by steps that double."""
        at, step = min(start, lost), STRIDE
        if at == lost or self._fails(at):
            high, at = at, at - step
            while at >= self.least and self._fails(at):
                step *= 2
                high, at = at, at - step
            return max(at, self.least - 1), high
        low, at = at, at + step
        while at < lost and not self._fails(at):
            step *= 2
            low, at = at, at + step
        return low, min(at, lost)

    def _lost(self, place: int) -> bool:
        """Whether it and the one above it fail; what is known already is looked at first."""
        pair = [each for each in (place + 1, place) if each <= self.greatest]
        return all(self._fails(each) for each in sorted(pair, key=lambda each: each not in self._known))

    def _fails(self, place: int) -> bool:
        return self._group(place) is not None

    def _group(self, place: int) -> Group | None:
        if place not in self._known:
            self._known[place] = self.failing(place)
        return self._known[place]


def fails(server: Server, traffic: Traffic, seed: int) -> Group | None:
    """The first group of which too many are late, or None. Ends as soon as that is certain. Where nothing at
    all is answered any group has failed, also one too small to be judged."""
    since = traffic.trace.span * WARM_UP
    wire = tripwire(traffic, server, since)
    results = Twin(server, traffic, seed, tripwire=wire).run()
    tripped = wire.tripped
    if tripped is None and results.answers.answered.any():
        return None
    failed = (g for g in groups(results, server, since) if tripped in (None, (g.unit, g.service_class)))
    return next(failed, None)
