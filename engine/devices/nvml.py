"""What NVIDIA's management library tells of a card. Optional: without it less is known.

Not run on the machines this was built on: they have no card.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Any, Self


class Nvml:
    """One card. Every question takes well under a millisecond; one without an answer is None."""

    def __init__(self, library: Any, handle: Any) -> None:
        self._library = library
        self._handle = handle

    @classmethod
    def open(cls, uuid: str) -> Self | None:
        """The card of this UUID ("GPU-..."); None where the library or the driver is missing."""
        try:
            import pynvml  # type: ignore[import-untyped]  # of nvidia-ml-py, in the optional group `cuda`
        except ImportError:
            return None
        try:
            pynvml.nvmlInit()
            return cls(pynvml, pynvml.nvmlDeviceGetHandleByUUID(uuid))
        except pynvml.NVMLError:
            return None

    def used_bytes(self) -> int | None:
        """By everybody, the driver's own reserve not counted."""
        memory = self._ask("nvmlDeviceGetMemoryInfo")
        return None if memory is None else int(memory.used)

    def own_bytes(self) -> int | None:
        """By this process, its context included. In a container the driver may know it by another number."""
        return self.bytes_of([os.getpid()])

    def bytes_of(self, pids: Collection[int]) -> int | None:
        """By these processes; None when the driver knows none of them."""
        held = [
            int(process.usedGpuMemory)
            for process in self._ask("nvmlDeviceGetComputeRunningProcesses") or ()
            if process.pid in pids and process.usedGpuMemory is not None
        ]
        return sum(held) if held else None

    def utilisation(self) -> float | None:
        rates = self._ask("nvmlDeviceGetUtilizationRates")
        return None if rates is None else rates.gpu / 100

    def temperature(self) -> float | None:
        """Degrees Celsius, at the chip."""
        degrees = self._ask("nvmlDeviceGetTemperature", self._library.NVML_TEMPERATURE_GPU)
        return None if degrees is None else float(degrees)

    def _ask(self, question: str, *about: int) -> Any:
        try:
            return getattr(self._library, question)(self._handle, *about)
        except self._library.NVMLError:
            return None
