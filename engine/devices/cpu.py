"""The host's processor: one thread a slot, and a budget of host memory for weights and workspace."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from anyio import CapacityLimiter, to_thread

from engine.devices.host import available_memory, core_quota, trim
from engine.offload import contained

R = TypeVar("R")


class Cpu:
    kind = "cpu"
    torch_device = "cpu"

    def __init__(
        self, name: str = "cpu", *, slots: int | None, memory: int | None, threads_per_slot: int
    ) -> None:
        self.name = name
        self.slots = slots or max(1, int(core_quota()))
        self.total_bytes = memory or available_memory() // 2
        self._threads_per_slot = threads_per_slot
        self._limiters = [CapacityLimiter(1) for _ in range(self.slots)]
        self._loading = CapacityLimiter(self.slots)

    async def open(self) -> None:
        """Import torch off the loop, and give each slot its threads and no more.

        Two OpenMP threads that share a busy machine are 10 to 100 times slower than one: parallelism
        comes from slots.
        """
        await to_thread.run_sync(self._limit_threads)

    def _limit_threads(self) -> None:
        import torch

        torch.set_num_threads(self._threads_per_slot)

    async def run(self, slot: int, model: object, cost: int, work: Callable[[], R]) -> R:
        return await to_thread.run_sync(contained(work), limiter=self._limiters[slot])

    async def load(self, unit: str, work: Callable[[], R]) -> R:
        return await to_thread.run_sync(contained(work), limiter=self._loading)

    async def unload(self, unit: str, work: Callable[[], None]) -> None:
        def let_go() -> None:
            # No garbage collection: it would stop every thread, and adapters empty their weights in place.
            work()
            trim()

        await to_thread.run_sync(contained(let_go), limiter=self._loading)

    def foreign_bytes(self) -> int:
        return 0  # the budget is ours alone: what other processes use is not part of it
