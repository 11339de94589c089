"""What a unit takes and whether it finds room, told before it is loaded: from the headers of its files."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace

from engine.catalog import ModelSpec
from engine.errors import EngineError
from engine.loading import explained
from engine.memory import placement
from engine.memory.footprint import Footprint
from engine.memory.holdings import Holdings
from engine.offload import Offload
from engine.units import Units, base, parted, units_of

log = logging.getLogger(__name__)


class Sizes:
    """Looks only: what it reads is remembered here, and changes nothing of what the memory manager holds.

    `inspect` reads what a unit takes. It is asked only for units whose weights are here, or it would have
    them fetched and converted. `ready` says whether they are, and reads the disk.
    """

    def __init__(
        self,
        units: Units,
        held: Holdings,
        inspect: Callable[[str], Awaitable[Footprint]],
        ready: Callable[[ModelSpec], bool],
        opening: Offload,
    ) -> None:
        self._units = units
        self._held = held
        self._inspect = inspect
        self._ready = ready
        self._opening = opening
        self._read: dict[str, Footprint] = {}
        self._complaints: dict[str, str] = {}
        """What was wrong with a unit's files when they were last looked at."""

    async def footprint(self, unit: str) -> Footprint | None:
        """What a unit of the catalogue takes, whose weights are here. None where they cannot be used."""
        serving = self._units.serving(unit)
        known = self._held.footprints.get(serving) or self._read.get(serving)
        if known is not None:
            return known
        try:
            found = self._read[serving] = await self._inspect(serving)
        except Exception as error:
            self._complain(serving, explained(error)[:500])
            return None
        return found

    def _complain(self, unit: str, said: str) -> None:
        """Once: the files are looked at again each time, for somebody may have mended them."""
        if self._complaints.get(unit) != said:
            self._complaints[unit] = said
            log.warning("%s cannot be sized: %s", unit, said)

    async def refusal(self, unit: str) -> EngineError | None:
        """What whoever asked for it now would be told, where it can be on no device beside what is pinned."""
        serving, of = self._units.serving(unit), parted(unit)[0]
        for each in dict.fromkeys((of, unit)):  # an adapter needs room for its base too
            if await self.footprint(each) is None:
                return None
        held = self._as_read()
        if any(placement.fits(held, serving, device) for device in held.devices(serving)):
            return None
        return placement.no_room(held, serving)

    async def displaced(self) -> tuple[str, ...]:
        """Units that find no room any more beside what is pinned, were they ever loaded or not: of those
        whose size is known, or can be read with nothing fetched or converted."""
        catalog = tuple(self._units.catalog)
        for spec in await self._opening(lambda: [*filter(self._is_here, catalog)]):
            for unit in units_of(spec):
                if self._units.serves(unit):
                    await self.footprint(unit)
        return tuple(base(unit) for unit in placement.displaced(self._as_read()) if self._serves(unit))

    def _serves(self, unit: str) -> bool:
        """Whether new requests go to this very version."""
        return self._units.serves(base(unit)) and self._units.serving(base(unit)) == unit

    def _is_here(self, spec: ModelSpec) -> bool:
        """With its adapters, whose headers are read too."""
        adapters = [spec.model_copy(update={"sources": lora.sources}) for lora in spec.loras.values()]
        return all(map(self._ready, (spec, *adapters)))

    def _as_read(self) -> Holdings:
        return replace(self._held, footprints={**self._read, **self._held.footprints})
