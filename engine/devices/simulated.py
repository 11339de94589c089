"""A device that computes nothing: it takes the time its models declare. For tests and planning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar, runtime_checkable

import anyio

R = TypeVar("R")


@runtime_checkable
class Timed(Protocol):
    """A model that says how long it would take."""

    load_seconds: float

    def seconds(self, cost: int) -> float:
        """Run time of a batch of `cost`."""
        ...


class Simulated:
    kind = "simulated"
    torch_device = "simulated"

    def __init__(self, name: str, *, slots: int, memory: int, speed: float = 1.0) -> None:
        self.name = name
        self.slots = slots
        self.total_bytes = memory
        self._speed = speed

    async def run(self, slot: int, model: object, cost: int, work: Callable[[], R]) -> R:
        assert isinstance(model, Timed), "a simulated device runs simulated models only"
        await anyio.sleep(model.seconds(cost) / self._speed)
        return work()

    async def load(self, unit: str, work: Callable[[], R]) -> R:
        model = work()
        assert isinstance(model, Timed), "a simulated device loads simulated models only"
        await anyio.sleep(model.load_seconds)
        return model

    async def unload(self, unit: str, work: Callable[[], None]) -> None:
        work()

    def foreign_bytes(self) -> int:
        return 0
