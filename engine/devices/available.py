"""The devices that the settings ask for, as objects."""

from __future__ import annotations

import importlib.util

from engine.config import Settings, SettingsError
from engine.devices.cpu import Cpu
from engine.devices.device import Device
from engine.devices.host import total_memory
from engine.devices.simulated import Simulated
from engine.errors import EngineError
from engine.quantities import about

SIMULATED_BYTES = 4 * 2**30


class NoSuchDevice(EngineError):
    """The settings name a device that this machine does not have."""


class TooMuchMemory(SettingsError):
    """The settings give a device more memory than it has."""


async def open_devices(settings: Settings) -> list[Device]:
    """In the order that the settings name them. The memory setting is the first one's."""
    check_memory(settings)
    devices: list[Device] = []
    for name in _names(settings.devices):
        memory = settings.memory if not devices else None
        devices.append(await _open(name, memory, settings))
    return devices


def _names(setting: str) -> list[str]:
    names: list[str] = []
    for name in setting.split(","):
        if name != "auto":
            names.append("cuda:0" if name == "cuda" else name)
            continue
        names += [f"cuda:{index}" for index in range(cuda_cards())] + ["cpu"]
    return list(dict.fromkeys(names))


def check_memory(settings: Settings) -> None:
    """Raises TooMuchMemory when the first device lacks what the settings give it."""
    name = _names(settings.devices)[0]
    total = _total(name)
    if settings.memory is not None and total is not None and settings.memory > total:
        said = f"{about(settings.memory)} is more than the {about(total)} that {name} has"
        raise TooMuchMemory([f"{settings.origin('memory')}: memory: {said}"])


def _total(name: str) -> int | None:
    """Bytes of a real device that is here."""
    kind, _, which = name.partition(":")
    if kind == "cpu":
        return total_memory()
    if kind == "cuda" and int(which) < cuda_cards():
        import torch

        return int(torch.cuda.get_device_properties(int(which)).total_memory)
    return None


async def _open(name: str, memory: int | None, settings: Settings) -> Device:
    kind, _, which = name.partition(":")
    if kind == "simulated":
        return Simulated(name, slots=settings.slots or 1, memory=memory or SIMULATED_BYTES)
    if kind == "cuda":
        if int(which) >= cuda_cards():
            raise NoSuchDevice(f"{name}: this machine has {cuda_cards()} CUDA cards that torch can use.")
        from engine.devices.cuda import Cuda

        return Cuda(int(which), slots=settings.slots, memory=memory)
    cpu = Cpu(slots=settings.slots, memory=memory, threads_per_slot=settings.threads_per_slot)
    await cpu.open()
    return cpu


def cuda_cards() -> int:
    """Cards that torch can use; 0 where torch is missing or was built without CUDA."""
    if importlib.util.find_spec("torch") is None:
        return 0
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0
