"""A simulated device on which everything slows everything else, by a law that is known."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import anyio

from engine.devices.simulated import Simulated, Timed

R = TypeVar("R")


class Shared(Simulated):
    """A batch takes what its model says, give or take a lognormal `scatter`, and one in a hundred four times
    as long; that while it is alone. Beside n others it takes `slowed[n]` times as long, beside a load
    `loading` times, and so does a load beside batches."""

    def __init__(
        self, *, slots: int, memory: int, slowed: tuple[float, ...], loading: float, scatter: float, seed: int
    ) -> None:
        super().__init__("simulated:a", slots=slots, memory=memory)
        self._law = slowed
        self._beside_loads = loading
        self._scatter = scatter
        self._rng = random.Random(seed)
        self._batches_now = self._loads_now = 0
        self._changed = anyio.Event()

    async def run(self, slot: int, model: object, cost: int, work: Callable[[], R]) -> R:
        assert isinstance(model, Timed)
        stalls = 4.0 if self._rng.random() < 0.01 else 1.0
        alone = model.seconds(cost) * self._rng.lognormvariate(0, self._scatter) * stalls
        with self._counted(1, 0):
            await self._go_on(alone, self._slowness)
        return work()

    async def load(self, unit: str, work: Callable[[], R]) -> R:
        model = work()
        assert isinstance(model, Timed)
        with self._counted(0, 1):
            await self._go_on(model.load_seconds, lambda: self._beside_loads if self._batches_now else 1.0)
        return model

    def _slowness(self) -> float:
        return self._law[self._batches_now - 1] * (self._beside_loads if self._loads_now else 1.0)

    @contextmanager
    def _counted(self, batches: int, loads: int) -> Iterator[None]:
        self._count(batches, loads)
        try:
            yield
        finally:
            self._count(-batches, -loads)

    def _count(self, batches: int, loads: int) -> None:
        self._batches_now += batches
        self._loads_now += loads
        self._changed.set()
        self._changed = anyio.Event()

    async def _go_on(self, left: float, slowness: Callable[[], float]) -> None:
        """Until so many seconds of work are done, at whatever pace there is."""
        while left > 1e-9:
            began, slower, changed = anyio.current_time(), slowness(), self._changed
            with anyio.move_on_after(left * slower):
                await changed.wait()
            left -= (anyio.current_time() - began) / slower
