"""Weights on their way: to a device, off it, and aside to host memory. What is done is decided elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, MutableMapping
from pathlib import Path

from engine.adapters.family import Family, GenerativeModel, Model, Parkable, Sleeping
from engine.catalog import ModelSpec
from engine.devices.asleep import Asleep
from engine.devices.device import Device, Parked
from engine.errors import EngineError, Failure, LoadFailed
from engine.memory.footprint import Footprint
from engine.offload import Offload
from engine.units import Units

log = logging.getLogger(__name__)


class Loading:
    """The models that are there, by unit and device, and those whose weights are in host memory."""

    def __init__(
        self,
        *,
        units: Units,
        devices: Mapping[str, Device],
        models: MutableMapping[tuple[str, str], Model | GenerativeModel],
        locate: Callable[[ModelSpec], Path],
        family: Callable[[str], Family],
        opening: Offload,
    ) -> None:
        self._units = units
        self._devices = devices
        self._models = models
        self._locate = locate
        self._family = family
        self._opening = opening
        self._aside: dict[str, tuple[str, Parked | Asleep]] = {}

    async def inspect(self, unit: str) -> Footprint:
        spec = self._units.spec(unit)

        def footprint() -> Footprint:
            return self._family(spec.family).footprint(spec, self._locate(spec))

        return await self._opening(footprint)

    async def load(self, unit: str, device: str, from_host: bool) -> None:
        """The model is among those that are there. Raises whatever its adapter or the device raises."""
        where = self._devices[device]
        if from_host and unit in self._aside:
            home, parked = self._aside[unit]
            if not isinstance(parked, Asleep):
                self._models[unit, device] = await where.restore(unit, parked)
                return
            if home == device:
                self._models[unit, device] = await where.load(unit, parked.wake)
                return
        spec = self._units.spec(unit)

        def load() -> Model | GenerativeModel:
            return self._family(spec.family).load(spec, self._locate(spec), where.torch_device)

        self._models[unit, device] = await where.load(unit, load)

    async def unload(self, unit: str, device: str, keep: bool) -> int:
        """The model is gone from its device. How many bytes of host memory it takes since then."""
        model, where = self._models.pop((unit, device)), self._devices[device]
        if keep and isinstance(model, Parkable):
            try:
                parked = await where.park(unit, model)
            except Exception:
                log.exception("%s could not be kept in host memory", unit)
            else:
                await self.drop(unit)
                self._aside[unit] = (device, parked)
                return parked.nbytes
        if keep and isinstance(model, Sleeping):
            asleep = Asleep(model)
            try:
                await where.unload(unit, asleep.begin)
            except Exception:
                log.exception("%s could not be put to sleep", unit)
                return 0
            await self.drop(unit)
            self._aside[unit] = (device, asleep)
            return asleep.nbytes
        try:
            await where.unload(unit, model.unload)
        except Exception:
            log.exception("%s did not unload cleanly", unit)
        return 0

    async def drop(self, unit: str) -> None:
        """Give back the host memory that the unit's weights take, if they are there."""
        if unit not in self._aside:
            return
        device, parked = self._aside.pop(unit)
        where = self._devices[device]
        try:
            await (where.unload(unit, parked.end) if isinstance(parked, Asleep) else where.forget(parked))
        except Exception:
            log.exception("the host memory of %s was not given back cleanly", unit)

    async def close(self) -> None:
        """Give back all that waits in host memory, and the processes that sleep."""
        for unit in tuple(self._aside):
            await self.drop(unit)

    async def abandon(self, unit: str, device: str) -> None:
        """Its device is lost: nobody can say what unloading does, but the model's other memory is freed."""
        model = self._models.pop((unit, device), None)
        if model is None:
            return
        try:
            await self._devices[device].unload(unit, model.unload)
        except Exception as error:
            log.warning("%s was left on %s, which is lost: %s", unit, device, error)


def failure(unit: str, error: Exception) -> Failure:
    """Why a unit could not be loaded, for whoever waits for it."""
    if isinstance(error, EngineError):
        return error.failure()
    log.error("%s could not be loaded", unit, exc_info=error)
    text = f"{unit} could not be loaded: {type(error).__name__}: {error}"
    return LoadFailed(text[:500], error_class=type(error).__name__, permanent=False).failure()
