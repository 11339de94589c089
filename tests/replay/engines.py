"""Servers whose capacity is known: small, fast, and with what real ones have: jitter, stalls, swaps."""

from __future__ import annotations

import math
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
        count = len(arrived)
        whose = rng.integers(0, self.models, count)
        jitter = rng.normal(1.0, 0.08, count).clip(0.7, 1.5)
        stall = np.where(rng.random(count) < 0.002, 0.5, 0.0)
        done = np.empty(count)
        queues: list[list[int]] = [[] for _ in range(self.models)]
        loaded: list[int] = []
        now, next_one, batch = 0.0, 0, 0
        while next_one < count or any(queues):
            if not any(queues):
                now = max(now, arrived[next_one])
            while next_one < count and arrived[next_one] <= now:
                queues[whose[next_one]].append(next_one)
                next_one += 1
            model = min((q[0], m) for m, q in enumerate(queues) if q)[1]
            taken, queues[model] = queues[model][: self.largest], queues[model][self.largest :]
            if model in loaded:
                loaded.remove(model)
            else:
                now += self.load
                loaded = loaded[-(self.resident - 1) :] if self.resident > 1 else []
            loaded.append(model)
            now += (self.overhead + self.each * len(taken)) * jitter[batch] + stall[batch]
            batch += 1
            done[taken] = now
        return done - arrived

    def capacity(self, target: float, low: float, high: float) -> float:
        """The rate at which the pooled p99 of long runs is `target`, by bisection."""
        for _ in range(9):
            middle = math.sqrt(low * high)
            pooled = np.concatenate([self.step(middle, 1200, seed).latency for seed in range(900, 908)])
            if np.quantile(pooled, 0.99) <= target:
                low = middle
            else:
                high = middle
        return math.sqrt(low * high)
