"""Weights on their way: to a device, off it, and aside to host memory. What is done is decided elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, MutableMapping
from functools import partial
from pathlib import Path

from engine.adapters.family import Adaptable, Adapting, Family, GenerativeModel, Model, Parkable, Sleeping
from engine.catalog import ModelSpec
from engine.devices.asleep import Asleep
from engine.devices.device import Device, Parked
from engine.errors import EngineError, Failure, InvalidInput, LoadFailed
from engine.memory.footprint import Footprint
from engine.offload import Offload
from engine.units import Units, parted

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
        _, adapter = parted(unit)

        def footprint() -> Footprint:
            family, path = self._family(spec.family), believed(self._locate(spec))
            if not adapter:
                return family.footprint(spec, path)
            if not isinstance(family, Adaptable):
                raise InvalidInput(f"models of the family {spec.family} take no adapters")
            return family.adapter_footprint(spec, adapter, path)

        return await self._opening(footprint)

    async def load(self, unit: str, device: str, from_host: bool) -> None:
        """The model is among those that are there. Raises whatever its adapter or the device raises."""
        where = self._devices[device]
        of, adapter = parted(unit)
        if adapter:
            await where.load(unit, partial(self._laid_over(of, device).bring, adapter))
            return
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
        of, adapter = parted(unit)
        if adapter:
            await self._let_go(unit, device, partial(self._laid_over(of, device).let_go, adapter))
            return 0
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
        await self._let_go(unit, device, model.unload)
        return 0

    async def _let_go(self, unit: str, device: str, work: Callable[[], None]) -> None:
        try:
            await self._devices[device].unload(unit, work)
        except Exception:
            log.exception("%s did not unload cleanly", unit)

    def _laid_over(self, unit: str, device: str) -> Adapting:
        """The model that adapters are laid over: it is there as long as any of them."""
        model = self._models[unit, device]
        if not isinstance(model, Adapting):
            raise InvalidInput(f"{unit} takes no adapters")
        return model

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


def believed(path: Path) -> Path:
    """`path`. Raises BadWeights for a model directory whose config.json cannot be true of its weights."""
    if (path / "config.json").is_file():
        # imported here: an engine without such models needs no torch
        from engine.adapters.forward import weights

        weights.believable(path)
    return path


def explained(error: Exception) -> str:
    """What went wrong with the files of a model, where the error itself would help nobody."""
    said = f"{type(error).__name__}: {error}"
    if isinstance(error, AttributeError | LookupError | TypeError):
        said = (
            f"{said[:200]}. One of its JSON files (config.json, tokenizer.json, tokenizer_config.json, "
            "preprocessor_config.json) does not hold what it should: compare them with the model's "
            "repository, or get them again"
        )
    return said


def failure(unit: str, error: Exception) -> Failure:
    """Why a unit could not be loaded, for whoever waits for it."""
    if isinstance(error, EngineError):
        return error.failure()
    log.error("%s could not be loaded", unit, exc_info=error)
    text = f"{unit} could not be loaded: {explained(error)}"
    return LoadFailed(text[:500], error_class=type(error).__name__, permanent=False).failure()
