"""The baseline of `many_models`: one queue in order of arrival, and the least recently used model leaves.

What a server does that has a model cache and dynamic batching and no more. It is given its due: a batch
takes all that waits for its model, wherever in the queue, up to the same cost as ours; it knows no classes.
When the head of the queue needs a model that is not there, it is loaded, and nothing younger starts before.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.engine.twin import Sim


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request: when, for which unit, how much."""

    at: float
    unit: str
    cost: int


@dataclass(slots=True)
class Fifo:
    """A card with `budget` bytes for weights and so many slots, in virtual time."""

    sims: Mapping[str, Sim]
    budget: int
    slots: int
    batch_cost: int
    loads: int = 0
    ended: dict[int, float] = field(default_factory=dict)
    """When each arrival was answered, by its place."""
    _resident: dict[str, None] = field(default_factory=dict)  # the least recently used first
    _running: Counter[str] = field(default_factory=Counter)
    _loading: str | None = None
    _queue: deque[int] = field(default_factory=deque)
    _lanes: dict[str, deque[int]] = field(default_factory=dict)
    _taken: set[int] = field(default_factory=set)
    _events: list[tuple[float, int, str, tuple[int, ...]]] = field(default_factory=list)
    _order: itertools.count[int] = field(default_factory=itertools.count)

    def run(self, arrivals: Sequence[Arrival], until: float) -> None:
        """Serve them in turn; what is not answered at `until` has no entry in `ended`."""
        coming = deque(enumerate(arrivals))
        while coming or self._events:
            if coming and (not self._events or coming[0][1].at <= self._events[0][0]):
                place, arrival = coming.popleft()
                now = arrival.at
                self._queue.append(place)
                self._lanes.setdefault(arrival.unit, deque()).append(place)
            else:
                now, _, unit, jobs = heapq.heappop(self._events)
                self._end(unit, jobs, now)
            if now > until:
                return
            self._start(arrivals, now)

    def _end(self, unit: str, jobs: tuple[int, ...], now: float) -> None:
        if not jobs:
            self._loading = None
            self._resident[unit] = None
            return
        self._running[unit] -= 1
        self.ended |= dict.fromkeys(jobs, now)

    def _start(self, arrivals: Sequence[Arrival], now: float) -> None:
        while self._loading is None and self._running.total() < self.slots:
            while self._queue and self._queue[0] in self._taken:
                self._taken.remove(self._queue.popleft())
            if not self._queue:
                return
            unit = arrivals[self._queue[0]].unit
            if unit not in self._resident:
                self._load(unit, now)
                return
            jobs, cost = list[int](), 0
            lane = self._lanes[unit]
            while lane and (not jobs or cost + arrivals[lane[0]].cost <= self.batch_cost):
                cost += arrivals[lane[0]].cost
                jobs.append(lane.popleft())
            self._taken.update(jobs)
            self._running[unit] += 1
            self._resident[unit] = self._resident.pop(unit)
            self._later(now + self.sims[unit].seconds(cost), unit, tuple(jobs))

    def _load(self, unit: str, now: float) -> None:
        """Begins when there is room; what runs is waited for."""
        weights = {name: self.sims[name].weights for name in self._resident}
        for name in [name for name in self._resident if not self._running[name]]:
            if sum(weights.values()) + self.sims[unit].weights <= self.budget:
                break
            del self._resident[name], weights[name]
        if sum(weights.values()) + self.sims[unit].weights <= self.budget:
            self._loading, self.loads = unit, self.loads + 1
            self._later(now + self.sims[unit].load_seconds, unit, ())

    def _later(self, when: float, unit: str, jobs: tuple[int, ...]) -> None:
        heapq.heappush(self._events, (when, next(self._order), unit, jobs))
