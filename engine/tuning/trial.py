"""One way to hold a model, loaded and timed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from engine.adapters.family import Model, Prepared, family
from engine.adapters.quick.family import quick
from engine.catalog import ModelSpec
from engine.errors import InvalidInput
from engine.tuning.knee import Point
from engine.tuning.numbers import Answer, numbers

COSTS = tuple(64 << step for step in range(8))
REPEATS = 3
Left = Callable[[], float]
"""Seconds that are left."""


class Trial:
    """Loaded by its own family on `device`; times are of the thread that runs a slot."""

    def __init__(self, name: str, spec: ModelSpec, path: Path, device: str) -> None:
        self.name, self.spec = name, spec
        self._device = device
        loaded = quick(family(spec.family)).load(spec, path, device)
        if not isinstance(loaded, Model):
            raise InvalidInput(f"{spec.id} generates; only models that answer at once are tuned.")
        self._model = loaded

    def answers(self, jobs: Sequence[Prepared]) -> list[Answer]:
        return [numbers(output) for output in self._model.run(jobs)]

    def seconds(self, jobs: Sequence[Prepared]) -> float:
        began = time.perf_counter()
        self._model.run(jobs)
        self._settle()
        return time.perf_counter() - began

    def curve(self, jobs: Sequence[Prepared], left: Left) -> list[Point]:
        """Batches of growing cost, as far as the jobs and the time go; at least one."""
        found: list[Point] = []
        for cost in COSTS:
            batch = upto(jobs, cost)
            total = sum(job.cost for job in batch)
            if found and (total <= found[-1].cost or left() < 4 * REPEATS * found[-1].seconds):
                break
            self.seconds(batch)
            found.append(Point(total, statistics.median(self.seconds(batch) for _ in range(REPEATS))))
        return found

    def rate(self, jobs: Sequence[Prepared], slots: int) -> float:
        """Cost a second of so many slots at once, each with its own thread and the same batch."""
        began = time.perf_counter()
        with ThreadPoolExecutor(slots) as threads:
            for _ in threads.map(lambda _: [self._model.run(jobs) for _ in range(REPEATS)], range(slots)):
                pass
        self._settle()
        return slots * REPEATS * sum(job.cost for job in jobs) / (time.perf_counter() - began)

    def close(self) -> None:
        self._model.unload()

    def _settle(self) -> None:
        if self._device.startswith("cuda"):
            import torch

            torch.cuda.synchronize()


def upto(jobs: Sequence[Prepared], cost: int) -> list[Prepared]:
    """The first jobs of at most this cost together; at least one."""
    total = 0
    found: list[Prepared] = []
    for job in jobs:
        if found and total + job.cost > cost:
            continue
        total += job.cost
        found.append(job)
    return found
