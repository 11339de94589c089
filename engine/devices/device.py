"""What the engine asks of a device: to run, to load, to keep what left, and to say what is on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from engine.adapters.family import Parkable

R = TypeVar("R")


class DeviceLost(Exception):
    """The device takes no more work, and what was on it is gone."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a device's driver said of it at one moment."""

    foreign_bytes: int = 0
    """Held here by others than this process."""
    allocated_bytes: int = 0
    """Held here by this process beside the device's `context_bytes`: in use, or kept for later."""
    utilisation: float | None = None
    """Share of the time, 0 to 1, in which it was computing for anybody."""
    temperature: float | None = None
    """Degrees Celsius."""


class Parked(Protocol):
    """A model whose weights are in host memory."""

    @property
    def nbytes(self) -> int:
        """Of the host's memory."""
        ...


class Device(Protocol):
    name: str
    kind: str
    slots: int
    total_bytes: int
    torch_device: str
    """What adapters load onto."""
    context_bytes: int
    """What the framework itself takes here, before any model."""
    host_tier: bool
    """Whether weights that leave come back sooner from host memory than from disk."""
    watched: bool
    """Whether `seen` can tell anything new from time to time."""
    last_seen: Seen

    async def run(self, slot: int, model: object, cost: int, work: Callable[[], R]) -> R:
        """Do `work`, a batch of `model`, on slot `slot`. Nothing else touches the slot meanwhile.

        Raises DeviceLost when the device is.
        """
        ...

    def peak(self, slot: int) -> int:
        """Bytes that the slot's last batch held at its peak beside what was there; 0 when nobody can tell."""
        ...

    async def load(self, unit: str, work: Callable[[], R]) -> R:
        """Do `work`, which brings `unit`'s weights here."""
        ...

    async def unload(self, unit: str, work: Callable[[], None]) -> None:
        """Do `work`, which lets `unit`'s weights go, and give its bytes back to the device."""
        ...

    async def park(self, unit: str, model: Parkable) -> Parked:
        """Move the weights of `model` to host memory, and give their bytes back here.

        When it raises, the model is as it was. Nobody may run the model until it is restored.
        """
        ...

    async def restore(self, unit: str, parked: Parked) -> Any:
        """The model, its weights here again by one copy. When it raises, it is still parked."""
        ...

    async def forget(self, parked: Parked) -> None:
        """Give the host memory back. After `restore` the model lives on; without it, it is gone."""
        ...

    async def seen(self) -> Seen:
        """Ask the driver, beside the loop where that may take long. Also kept as `last_seen`."""
        ...

    def release_caches(self) -> None:
        """Give back what the allocator keeps for later. Called on a slot's thread."""
        ...

    def lost_by(self, error: BaseException) -> bool:
        """Whether this error, of a batch or a load, means that the device is lost. On a slot's thread."""
        ...
