"""Servers whose capacity is known: small, fast, and with what real ones have: jitter, stalls, swaps."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass

import numpy as np

from replay.steps import Step
from replay.trace import Floats

WARM_UP = 0.15

BURST = 4
"""Requests of one burst, on average."""


@dataclass(frozen=True)
class Server:
    """One server that batches what waits: a batch of n takes `overhead + n * each` seconds, give or take.

    Requests are for one of `models`; where fewer are `resident` at once, another's batch waits for a load.
    """

    overhead: float = 0.06
    each: float = 0.03
    largest: int = 8
    models: int = 1
    resident: int = 1
    load: float = 0.5
    bursty: bool = False

    def arrivals(self, rate: float, seconds: float, rng: np.random.Generator) -> Floats:
        """Poisson, or bursts of four on average that come together within a tenth of a second."""
        if not self.bursty:
            count = rng.poisson(rate * seconds)
            return np.sort(rng.uniform(0, seconds, count))
        bursts = rng.uniform(0, seconds, rng.poisson(rate * seconds / BURST))
        sizes = rng.geometric(1 / BURST, len(bursts))
        times = np.repeat(bursts, sizes) + rng.uniform(0, 0.1, sizes.sum())
        return np.sort(times[times < seconds])

    def step(self, rate: float, seconds: float, seed: int) -> Step:
        rng = np.random.default_rng(seed)
        warm = seconds * WARM_UP
        arrived = self.arrivals(rate, seconds + warm, rng)
        latency = self._serve(arrived, rng)
        counted = arrived >= warm
        return Step(rate, warm, warm + seconds, arrived[counted], latency[counted])

    def _serve(self, arrived: Floats, rng: np.random.Generator) -> Floats:
        """Seconds from each arrival to its answer. Per batch, not per request: sweeps are many."""
        count = len(arrived)
        whose = rng.integers(0, self.models, count)
        jitter = rng.normal(1.0, 0.08, count).clip(0.7, 1.5).tolist()
        stall = np.where(rng.random(count) < 0.002, 0.5, 0.0).tolist()
        rows = [np.flatnonzero(whose == model) for model in range(self.models)]
        times = [[*arrived[mine].tolist(), math.inf] for mine in rows]
        heads, nexts = [0] * self.models, [queue[0] for queue in times]
        began, ended = [[] for _ in rows], [[] for _ in rows]  # type: list[list[int]], list[list[float]]
        loaded: list[int] = []
        now, batch = 0.0, 0
        while (first := min(nexts)) < math.inf:
            now = max(now, first)
            model = nexts.index(first)
            last = bisect_right(
                times[model], now, head := heads[model], min(head + self.largest, len(rows[model]))
            )
            if model in loaded:
                loaded.remove(model)
            else:
                now += self.load
                loaded = loaded[-(self.resident - 1) :] if self.resident > 1 else []
            loaded.append(model)
            now += (self.overhead + self.each * (last - head)) * jitter[batch] + stall[batch]
            batch += 1
            began[model].append(head)
            ended[model].append(now)
            heads[model], nexts[model] = last, times[model][last]
        done = np.empty(count)
        for mine, starts, times_done in zip(rows, began, ended, strict=True):
            if len(mine):
                done[mine] = np.repeat(times_done, np.diff([*starts, len(mine)]))
        return done - arrived

    def capacity(self, target: float, low: float, high: float, seconds: float = 1200) -> float:
        """The rate at which the pooled p99 of six runs is `target`, by bisection, to within a hundredth."""
        while high / low > 1.01:
            middle = math.sqrt(low * high)
            pooled = np.concatenate([self.step(middle, seconds, seed).latency for seed in range(900, 906)])
            if np.quantile(pooled, 0.99) <= target:
                low = middle
            else:
                high = middle
        return math.sqrt(low * high)
