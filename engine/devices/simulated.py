"""A device that computes nothing: it takes the time its models declare, and fails when it is told to.

For tests and planning.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

import anyio

from engine.adapters.family import Parkable
from engine.devices.company import Company
from engine.devices.device import DeviceLost, Parked, Seen

R = TypeVar("R")


@runtime_checkable
class Timed(Protocol):
    """A model that says what it takes."""

    weights_bytes: int
    load_seconds: float
    restore_seconds: float

    def seconds(self, cost: int) -> float:
        """Run time of a batch of `cost`."""
        ...

    def peak_bytes(self, cost: int) -> int:
        """What such a batch holds at its peak beside the weights."""
        ...


@dataclass(frozen=True, slots=True)
class Aside:
    """A simulated model that is not on its device."""

    model: Timed
    nbytes: int


class Simulated:
    kind = "simulated"
    torch_device = "simulated"
    context_bytes = 0

    def __init__(
        self,
        name: str,
        *,
        slots: int,
        memory: int,
        speed: float = 1.0,
        host_tier: bool = False,
        lost_at: int | None = None,
        foreign: Callable[[float], int] | None = None,
    ) -> None:
        """The device is lost in its batch number `lost_at`. `foreign` gives what others hold, by time."""
        self.name = name
        self.slots = slots
        self.total_bytes = memory
        self.host_tier = host_tier
        self.watched = foreign is not None
        self.last_seen = Seen()
        self._speed = speed
        self._lost_at = lost_at
        self._foreign = foreign
        self._lost = False
        self._batches = 0
        self._peaks = [0] * slots
        self._company = Company()

    def lose(self) -> None:
        """From now on it fails, and so does all that it is doing."""
        self._lost = True

    async def run(self, slot: int, model: object, cost: int, work: Callable[[], R]) -> R:
        timed = cast(Timed, model)  # it was looked at when it was loaded
        self._batches += 1
        number, self._peaks[slot] = self._batches, 0
        with self._company.present() as here:
            await self._pass(timed.seconds(cost) / self._speed)
            if number == self._lost_at:
                self.lose()
                self._answer_for_itself()
            result = work()
        self._peaks[slot] = timed.peak_bytes(cost) if here.alone else 0
        return result

    def peak(self, slot: int) -> int:
        return self._peaks[slot]

    async def load(self, unit: str, work: Callable[[], R]) -> R:
        model = work()
        assert isinstance(model, Timed), "a simulated device loads simulated models only"
        with self._company.present():
            await self._pass(model.load_seconds)
        return model

    async def unload(self, unit: str, work: Callable[[], None]) -> None:
        work()

    async def park(self, unit: str, model: Parkable) -> Parked:
        assert isinstance(model, Timed), "a simulated device parks simulated models only"
        with self._company.present():
            await self._pass(model.restore_seconds)
        return Aside(model, model.weights_bytes)

    async def restore(self, unit: str, parked: Parked) -> Any:
        model = cast(Aside, parked).model
        with self._company.present():
            await self._pass(model.restore_seconds)
        return model

    async def forget(self, parked: Parked) -> None:
        pass  # there is nothing behind it

    async def seen(self) -> Seen:
        if self._foreign is not None:
            self.last_seen = Seen(foreign_bytes=self._foreign(anyio.current_time()))
        return self.last_seen

    def release_caches(self) -> None:
        pass  # it keeps none

    def lost_by(self, error: BaseException) -> bool:
        return isinstance(error, DeviceLost)

    async def _pass(self, seconds: float) -> None:
        """Let this time pass. Raises DeviceLost if the device is lost before its end."""
        self._answer_for_itself()
        await anyio.sleep(seconds)
        self._answer_for_itself()

    def _answer_for_itself(self) -> None:
        if self._lost:
            raise DeviceLost(f"{self.name} was told to fail")
