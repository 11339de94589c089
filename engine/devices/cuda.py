"""A CUDA card: one stream a slot, one memory pool a unit, bytes as the driver counts them.

Written against torch 2.13 and not run on the machines this was built on: they have no card.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

import torch
from anyio import CapacityLimiter, to_thread

from engine.adapters.family import Parkable, Sleeping
from engine.devices.company import Company, Presence
from engine.devices.device import DeviceLost, Parked, Seen
from engine.devices.failures import cuda_failed
from engine.devices.nvml import Nvml
from engine.devices.parking import ParkedTensors, park
from engine.offload import contained

R = TypeVar("R")

DEFAULT_SLOTS = 2


class Cuda:
    kind = "cuda"
    host_tier = True
    watched = True

    def __init__(self, index: int, *, slots: int | None, memory: int | None) -> None:
        self.name = self.torch_device = f"cuda:{index}"
        self.slots = slots or DEFAULT_SLOTS
        self.last_seen = Seen()
        self._device = torch.device(self.torch_device)
        properties = torch.cuda.get_device_properties(self._device)
        self._nvml = Nvml.open(f"GPU-{properties.uuid}")
        self.context_bytes = self._open_context()
        _, total = torch.cuda.mem_get_info(self._device)
        self.total_bytes = min(memory or total, total)
        self._streams = [torch.cuda.Stream(self._device) for _ in range(self.slots)]
        self._limiters = [CapacityLimiter(1) for _ in range(self.slots)]
        self._peaks = [0] * self.slots
        self._copies = torch.cuda.Stream(self._device)
        self._loading = CapacityLimiter(self.slots)
        self._company = Company()
        self._pools: dict[str, Any] = {}
        self._housed: dict[str, Sleeping] = {}

    async def run(self, slot: int, model: object, cost: int, work: Callable[[], R]) -> R:
        self._peaks[slot] = 0
        with self._company.present() as here:
            on_stream = partial(self._on_stream, slot, work, here)
            result, peak = await to_thread.run_sync(contained(on_stream), limiter=self._limiters[slot])
        self._peaks[slot] = peak if here.alone else 0
        return result

    def peak(self, slot: int) -> int:
        return self._peaks[slot]

    async def load(self, unit: str, work: Callable[[], R]) -> R:
        def into_pool() -> R:
            self._pools[unit] = pool = torch.cuda.MemPool()
            try:
                with torch.cuda.use_mem_pool(pool, self._device):
                    result = work()
                self._copies.synchronize()
            except Exception as error:
                del pool
                traceback.clear_frames(error.__traceback__)  # they hold what came before it
                self._close_pool(unit)
                raise
            if isinstance(result, Sleeping):
                self._housed[unit] = result
            return result

        return await self._aside(into_pool)

    async def unload(self, unit: str, work: Callable[[], None]) -> None:
        # What a process of ours still holds when it sleeps is nobody's in the ledger: seen as foreign.
        self._housed.pop(unit, None)

        def let_go() -> None:
            work()
            self._close_pool(unit)

        await self._aside(let_go)

    async def park(self, unit: str, model: Parkable) -> Parked:
        def away() -> ParkedTensors:
            parked = park(model, self.torch_device)
            self._close_pool(unit)
            return parked

        return await self._aside(away)

    async def restore(self, unit: str, parked: Parked) -> Any:
        held = cast(ParkedTensors, parked)
        await self.load(unit, partial(held.restore, self.torch_device))
        return held.model

    async def forget(self, parked: Parked) -> None:
        await self._aside(cast(ParkedTensors, parked).release)

    async def seen(self) -> Seen:
        with contextlib.suppress(RuntimeError):  # a lost card answers nothing
            self.last_seen = await to_thread.run_sync(self._look)
        return self.last_seen

    def release_caches(self) -> None:
        torch.cuda.empty_cache()

    def lost_by(self, error: BaseException) -> bool:
        """Asks the card itself: after an error for ever every further call fails."""
        if isinstance(error, DeviceLost):
            return True
        if not cuda_failed(error):
            return False
        try:
            torch.cuda.synchronize(self._device)
        except Exception:
            return True
        return False

    async def _aside(self, work: Callable[[], R]) -> R:
        """Beside the slots, on the stream of copies."""

        def on_copies() -> R:
            with torch.cuda.device(self._device), torch.cuda.stream(self._copies):
                return self._telling(work)

        with self._company.present():
            return await to_thread.run_sync(contained(on_copies), limiter=self._loading)

    def _on_stream(self, slot: int, work: Callable[[], R], here: Presence) -> tuple[R, int]:
        """The result, and the peak, which is true only if nobody else came meanwhile."""
        stream = self._streams[slot]
        with torch.cuda.device(self._device), torch.cuda.stream(stream):
            before = self._begin_peak() if here.alone else 0

            def through() -> R:
                result = work()
                stream.synchronize()
                return result

            result = self._telling(through)
            return result, self._end_peak(before) if here.alone else 0

    def _begin_peak(self) -> int:
        torch.cuda.reset_peak_memory_stats(self._device)
        return torch.cuda.memory_allocated(self._device)

    def _end_peak(self, before: int) -> int:
        """Without what was there before or stays: weights, and KV that is leased by itself."""
        stays = max(before, torch.cuda.memory_allocated(self._device))
        return torch.cuda.max_memory_allocated(self._device) - stays

    def _telling(self, work: Callable[[], R]) -> R:
        """`work`, whose errors for ever are DeviceLost."""
        try:
            return work()
        except DeviceLost:
            raise
        except Exception as error:
            if self.lost_by(error):
                raise DeviceLost(f"{self.name}: {error}") from error
            raise

    def _close_pool(self, unit: str) -> None:
        self._pools.pop(unit, None)
        torch.cuda.empty_cache()

    def _open_context(self) -> int:
        """Bytes that the context takes; 0 where nobody can tell, and then it counts as foreign."""
        before = self._nvml.used_bytes() if self._nvml else None
        torch.zeros(1, device=self._device)
        torch.cuda.synchronize(self._device)
        ours = torch.cuda.memory_reserved(self._device)
        if self._nvml is None or before is None:
            return 0
        own = self._nvml.own_bytes()
        held = own if own is not None else (self._nvml.used_bytes() or 0) - before
        return max(0, held - ours)

    def _look(self) -> Seen:
        """The context grows a little as kernels are first used; that is seen as ours where NVML knows us."""
        nvml = self._nvml
        used = nvml.used_bytes() if nvml else None
        if used is None:
            free, total = torch.cuda.mem_get_info(self._device)
            used = total - free
        own = nvml.own_bytes() if nvml else None
        housed = list(self._housed.values())
        if own is None or nvml is None:
            own = self.context_bytes + torch.cuda.memory_reserved(self._device)
            own += sum(model.device_bytes for model in housed)
        elif housed:
            own += nvml.bytes_of(frozenset().union(*(model.pids for model in housed))) or 0
        return Seen(
            foreign_bytes=max(0, used - own),
            allocated_bytes=max(0, own - self.context_bytes),
            utilisation=nvml.utilisation() if nvml else None,
            temperature=nvml.temperature() if nvml else None,
        )
