"""The host's processor: one thread a slot, and a budget of host memory for weights and workspace."""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Callable
from typing import TypeVar

import psutil
from anyio import CapacityLimiter, to_thread

R = TypeVar("R")


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Cpu:
    kind = "cpu"
    torch_device = "cpu"

    def __init__(
        self, name: str = "cpu", *, slots: int | None, memory: int | None, threads_per_slot: int
    ) -> None:
        self.name = name
        self.slots = slots or cores()
        self.total_bytes = memory or psutil.virtual_memory().available // 2
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
        return await to_thread.run_sync(work, limiter=self._limiters[slot])

    async def load(self, unit: str, work: Callable[[], R]) -> R:
        return await to_thread.run_sync(work, limiter=self._loading)

    async def unload(self, unit: str, work: Callable[[], None]) -> None:
        def let_go() -> None:
            work()
            gc.collect()
            return_free_memory()

        await to_thread.run_sync(let_go, limiter=self._loading)

    def foreign_bytes(self, own_bytes: int) -> int:
        return 0  # the budget is ours alone: what other processes use is not part of it


def return_free_memory() -> None:
    """Have the C allocator give freed pages back to the system, where it is glibc's."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        return
