"""A CUDA card: one stream a slot, one memory pool a unit, bytes as the driver counts them.

Not run on every machine: the tests that need a card are skipped without one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from anyio import CapacityLimiter, to_thread

from engine.offload import contained

R = TypeVar("R")

DEFAULT_SLOTS = 2


class Cuda:
    kind = "cuda"

    def __init__(self, index: int, *, slots: int | None, memory: int | None) -> None:
        self.name = self.torch_device = f"cuda:{index}"
        self.slots = slots or DEFAULT_SLOTS
        self._device = torch.device(self.torch_device)
        _, total = torch.cuda.mem_get_info(self._device)
        self.total_bytes = min(memory or total, total)
        self._streams = [torch.cuda.Stream(self._device) for _ in range(self.slots)]
        self._limiters = [CapacityLimiter(1) for _ in range(self.slots)]
        self._loading = CapacityLimiter(self.slots)
        self._pools: dict[str, Any] = {}

    async def run(self, slot: int, model: object, cost: int, work: Callable[[], R]) -> R:
        def on_stream() -> R:
            stream = self._streams[slot]
            with torch.cuda.device(self._device), torch.cuda.stream(stream):
                result = work()
                stream.synchronize()
                return result

        return await to_thread.run_sync(contained(on_stream), limiter=self._limiters[slot])

    async def load(self, unit: str, work: Callable[[], R]) -> R:
        def into_pool() -> R:
            with torch.cuda.device(self._device):
                pool = torch.cuda.MemPool()
                with torch.cuda.use_mem_pool(pool):
                    result = work()
                torch.cuda.synchronize(self._device)
            self._pools[unit] = pool
            return result

        return await to_thread.run_sync(contained(into_pool), limiter=self._loading)

    async def unload(self, unit: str, work: Callable[[], None]) -> None:
        def let_go() -> None:
            work()
            self._pools.pop(unit, None)
            torch.cuda.empty_cache()

        await to_thread.run_sync(contained(let_go), limiter=self._loading)

    def foreign_bytes(self) -> int:
        """What the driver says is used, less our allocator's share of it."""
        free, total = torch.cuda.mem_get_info(self._device)
        return max(0, total - free - torch.cuda.memory_reserved(self._device))
