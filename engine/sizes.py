"""What a unit takes and whether it finds room, told before it is loaded: from the headers of its files."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace

from engine.errors import EngineError
from engine.memory import placement
from engine.memory.footprint import Footprint
from engine.memory.holdings import Holdings
from engine.units import Units

log = logging.getLogger(__name__)


class Sizes:
    """Looks only: what it reads is remembered here, and changes nothing of what the memory manager holds.

    `inspect` reads what a unit takes. It is asked only for units whose weights are here, or it would have
    them fetched and converted.
    """

    def __init__(self, units: Units, held: Holdings, inspect: Callable[[str], Awaitable[Footprint]]) -> None:
        self._units = units
        self._held = held
        self._inspect = inspect
        self._read: dict[str, Footprint] = {}

    async def footprint(self, unit: str) -> Footprint | None:
        """What a unit of the catalogue takes, whose weights are here. None where they cannot be used."""
        serving = self._units.serving(unit)
        known = self._held.footprints.get(serving) or self._read.get(serving)
        if known is not None:
            return known
        try:
            found = self._read[serving] = await self._inspect(serving)
        except Exception as error:
            log.warning("%s cannot be sized: %s", serving, type(error).__name__)
            return None
        return found

    async def refusal(self, unit: str) -> EngineError | None:
        """What whoever asked for it now would be told, where it can be on no device beside what is pinned."""
        footprint, serving = await self.footprint(unit), self._units.serving(unit)
        if footprint is None:
            return None
        held = replace(self._held, footprints={**self._held.footprints, serving: footprint})
        if any(placement.fits(held, serving, device) for device in held.devices(serving)):
            return None
        return placement.no_room(held, serving)
