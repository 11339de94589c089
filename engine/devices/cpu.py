"""The host's processor: one thread a slot, and a budget of host memory for weights and workspace."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import psutil
from anyio import to_thread

from engine.adapters.family import Parkable
from engine.devices.device import DeviceLost, Parked, Seen
from engine.devices.host import available_memory, core_quota, trim
from engine.offload import Threads

R = TypeVar("R")


class Cpu:
    kind = "cpu"
    torch_device = "cpu"
    context_bytes = 0
    host_tier = False  # its weights are in host memory already
    watched = True

    def __init__(
        self, name: str = "cpu", *, slots: int | None, memory: int | None, threads_per_slot: int
    ) -> None:
        self.name = name
        self.slots = slots or max(1, int(core_quota()))
        self.total_bytes = memory or available_memory() // 2
        self._threads_per_slot = threads_per_slot
        self._running = [Threads(1) for _ in range(self.slots)]
        self._loading = Threads(self.slots)
        self.last_seen = Seen()
        self._process = psutil.Process()
        self._before = self._process.memory_info().rss

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
        return await self._running[slot](work)

    async def load(self, unit: str, work: Callable[[], R]) -> R:
        return await self._loading(work)

    async def unload(self, unit: str, work: Callable[[], None]) -> None:
        def let_go() -> None:
            # No garbage collection: it would stop every thread, and adapters empty their weights in place.
            work()
            trim()

        await self._loading(let_go)

    def peak(self, slot: int) -> int:
        return 0  # nobody counts what one thread of a process allocates

    async def park(self, unit: str, model: Parkable) -> Parked:
        """As on a card, from host memory to host memory: that way it is measured without one."""

        def away() -> Parked:
            from engine.devices.parking import park  # imports torch

            return park(model, self.torch_device)

        return await self._loading(away)

    async def restore(self, unit: str, parked: Any) -> Any:
        back = partial(parked.restore, self.torch_device)
        await self._loading(back)
        return parked.model

    async def forget(self, parked: Any) -> None:
        await self._loading(parked.release)

    async def seen(self) -> Seen:
        # Foreign: none. The budget is ours alone; what other processes use is not part of it.
        grown = self._process.memory_info().rss - self._before
        self.last_seen = Seen(allocated_bytes=max(0, grown))
        return self.last_seen

    def release_caches(self) -> None:
        trim()

    def lost_by(self, error: BaseException) -> bool:
        return isinstance(error, DeviceLost)
