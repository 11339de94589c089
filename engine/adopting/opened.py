"""A catalogue that grows: what a request names and nobody described gets an entry, where that is allowed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import partial

import anyio

from engine import own_entries
from engine.adopting import adopt
from engine.config import Settings
from engine.errors import EngineError, InvalidInput, StateChanged, UnknownModel, WeightsUnavailable
from engine.offload import Offload
from engine.orders import CatalogDone
from engine.units import Units

AGAIN = 60.0
"""Seconds for which a name that came to nothing is refused without asking the hub again."""
REMEMBERED = 1000


class Opened:
    """One name at a time: papers are small, and a flood of names is no reason to fetch more at once."""

    def __init__(
        self,
        settings: Settings,
        units: Units,
        opening: Offload,
        add_entry: Callable[[str, str], Awaitable[CatalogDone]],
    ) -> None:
        self._settings = settings
        self._units = units
        self._opening = opening
        self._add_entry = add_entry
        self._one = anyio.Lock()
        self._refused: OrderedDict[str, tuple[float, EngineError]] = OrderedDict()

    async def need(self, model: str) -> None:
        """The catalogue knows `ORG/NAME`, or it is refused: UnknownModel with why, or InvalidInput."""
        if not self._settings.open_catalog or self._known(model):
            return
        name = hub_name(model)
        if "/" not in name:
            return
        async with self._one:
            if not self._known(model):
                await self._adopt(name)

    def _known(self, model: str) -> bool:
        try:
            self._units.catalog.resolve(model)
        except UnknownModel:
            return False
        except InvalidInput:  # its profile is what is wrong
            return True
        return True

    async def _adopt(self, name: str) -> None:
        until, refusal = self._refused.get(name, (0.0, None))
        if refusal is not None and anyio.current_time() < until:
            raise refusal
        asked = self._settings
        papers = partial(adopt.repository, name, asked.online, asked.hub_endpoint, asked.hub_token)
        try:
            spec = await self._opening(papers)
            await self._add_entry(own_entries.written(spec), "open_catalog")
        except WeightsUnavailable as error:
            raise self._remembered(name, UnknownModel(error.message, model=name)) from None
        except StateChanged:
            return
        except InvalidInput as error:
            raise self._remembered(name, error) from None

    def _remembered(self, name: str, refusal: EngineError) -> EngineError:
        self._refused[name] = anyio.current_time() + AGAIN, refusal
        while len(self._refused) > REMEMBERED:
            self._refused.popitem(last=False)
        return refusal


def hub_name(model: str) -> str:
    """Without its profile, and as the hub writes it."""
    base = model.partition(":")[0]
    return base if "/" in base else base.replace("__", "/", 1)
