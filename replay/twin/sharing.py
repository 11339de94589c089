"""What runs on one device at once: each batch goes on as fast as its company lets it, moment by moment.

All batches of a device go on at one rate, so its progress is one clock that runs faster or slower, and a
batch ends when that clock has passed by as much as it would take alone. The same for loads.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable

from replay.twin.clock import Clock
from replay.twin.server import Card
from replay.twin.spells import Spells


class Sharing:
    """One device."""

    def __init__(self, clock: Clock, card: Card, seed: int) -> None:
        self._clock = clock
        self._card = card
        self._spells = Spells(card.spells, random.Random(f"{seed}/{card.name}/spells"))
        self._batches = _Lane(clock)
        self._loads = _Lane(clock)
        self._even = card.loading == 1.0 and all(card.slowing(n) == 1.0 for n in range(card.slots))
        """Nothing slows anything: there is nothing to keep."""

    @property
    def rate(self) -> float:
        """At which one more batch would go on now; 1 is alone, as usual."""
        alone = 1.0 if self._even else self._rate(self._batches.present)
        return alone / self._spells.at(self._clock.now)

    def batch(self, seconds: float, done: Callable[[], None]) -> None:
        """Call when a batch that as a rule would take so long alone has ended."""
        self._begin(self._batches, seconds * self._spells.at(self._clock.now), done)

    def load(self, seconds: float, done: Callable[[], None]) -> None:
        self._begin(self._loads, seconds, done)

    def _begin(self, lane: _Lane, seconds: float, done: Callable[[], None]) -> None:
        if self._even:
            self._clock.at(self._clock.now + seconds, done)
            return

        def ended() -> None:
            self._changed()
            done()

        lane.add(seconds, ended)
        self._changed()

    def _changed(self) -> None:
        """Somebody came or left."""
        batches = self._batches.present
        self._batches.go_on(self._rate(max(0, batches - 1)))
        self._loads.go_on(1 / self._card.loading if batches else 1.0)

    def _rate(self, others: int) -> float:
        beside = self._card.loading if self._loads.present else 1.0
        return 1 / (self._card.slowing(others) * beside)


class _Lane:
    """Those who go on at one rate."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._numbers = itertools.count()
        self._ends: list[tuple[float, int, Callable[[], None]]] = []
        self._rate = 1.0
        self._since = 0.0
        self._passed = 0.0
        """Seconds of work that each who was there all the time had done by `_since`."""
        self._version = 0

    @property
    def present(self) -> int:
        return len(self._ends)

    def add(self, seconds: float, ended: Callable[[], None]) -> None:
        self._settle()
        heapq.heappush(self._ends, (self._passed + seconds, next(self._numbers), ended))

    def go_on(self, rate: float) -> None:
        """At this rate from now on."""
        self._settle()
        self._rate = rate
        self._version += 1
        if self._ends:
            left = max(0.0, self._ends[0][0] - self._passed)
            self._clock.at(self._clock.now + left / rate, self._due, self._version)

    def _settle(self) -> None:
        now = self._clock.now
        self._passed += (now - self._since) * self._rate
        self._since = now

    def _due(self, version: int) -> None:
        """The first one's end, unless somebody came or left since it was foreseen."""
        if version == self._version:
            heapq.heappop(self._ends)[2]()
