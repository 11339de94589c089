"""What the engine asks of a device: to run, to load, and to say how large it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

R = TypeVar("R")


class Device(Protocol):
    name: str
    kind: str
    slots: int
    total_bytes: int
    torch_device: str
    """What adapters load onto."""

    async def run(self, slot: int, model: object, cost: int, work: Callable[[], R]) -> R:
        """Do `work`, a batch of `model`, on slot `slot`. Nothing else touches the slot meanwhile."""
        ...

    async def load(self, unit: str, work: Callable[[], R]) -> R:
        """Do `work`, which brings `unit`'s weights here."""
        ...

    async def unload(self, unit: str, work: Callable[[], None]) -> None:
        """Do `work`, which lets `unit`'s weights go, and give its bytes back to the device."""
        ...

    def foreign_bytes(self) -> int:
        """Bytes that are held here by others than our allocator."""
        ...
