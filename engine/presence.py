"""What operators want to be in memory: loads, unloads and pins, of whichever version serves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TypeVar

from engine.actors.actor import Mailbox
from engine.actors.messages import Load, MemoryMessage, Pin, Unload, Unpin
from engine.changeover import Changeover
from engine.errors import EngineError, InvalidInput, StillBusy
from engine.units import Units, base
from engine.wishes import Pinned

T = TypeVar("T")


class Presence:
    """The only owner of what is wished to be pinned; who is pinned is the memory manager's word."""

    def __init__(
        self,
        *,
        units: Units,
        changeover: Changeover,
        memory: Mailbox[MemoryMessage],
        pins: dict[str, Pinned],
    ) -> None:
        self.pins = pins
        self._units = units
        self._changeover = changeover
        self._memory = memory
        self._unpins: Counter[str] = Counter()
        """How often each unit was unpinned: a pin that is still on its way then is none."""

    async def load(self, unit: str) -> None:
        await self._of_serving(unit, lambda serving: self._memory.ask(Load, unit=serving))

    async def unload(self, version: str) -> None:
        """Raises InvalidInput for one that is pinned, StillBusy while versions change."""
        unit = base(version)
        held = unit not in self.pins and self._changeover.holds(unit)
        text = f"{unit} is held while its version changes; try again when that is over."
        if held:
            raise StillBusy(text, left={})
        try:
            await self._memory.ask(Unload, unit=version)
        except InvalidInput:
            if unit in self.pins or not self._changeover.holds(unit):
                raise
            raise StillBusy(text, left={}) from None

    async def pin(self, wish: Pinned) -> None:
        unit, before = wish.unit, self._unpins[wish.unit]

        def check() -> None:
            if self._unpins[unit] != before:
                raise InvalidInput(f"{unit} was unpinned before it was ready.")

        async def ask(serving: str) -> None:
            check()
            await self._memory.ask(Pin, unit=serving, device=wish.device, min_slots=wish.min_slots)

        await self._of_serving(unit, ask)
        check()
        self.pins[unit] = wish

    async def unpin(self, unit: str) -> None:
        """While its version changes it is held for that, and let go when it is over."""
        self._unpins[unit] += 1
        self.pins.pop(unit, None)
        if not self._changeover.holds(unit):
            await self._memory.ask(Unpin, unit=self._units.serving(unit))

    async def _of_serving(self, unit: str, ask: Callable[[str], Awaitable[T]]) -> T:
        """What the version that serves answers; where another came to serve meanwhile, what that answers."""
        while True:
            await self._changeover.over(unit)
            serving = self._units.serving(unit)
            try:
                answer = await ask(serving)
            except EngineError:
                if not self._changeover.holds(unit) and self._units.serving(unit) == serving:
                    raise
                continue
            if self._changeover.holds(unit) or self._units.serving(unit) == serving:
                return answer
