"""The devices that the settings ask for, as objects."""

from __future__ import annotations

import importlib.util

from engine.config import Settings
from engine.devices.cpu import Cpu
from engine.devices.device import Device
from engine.devices.simulated import Simulated
from engine.errors import EngineError

SIMULATED_BYTES = 4 * 2**30


class NoSuchDevice(EngineError):
    """The settings name a device that this machine does not have."""


async def open_devices(settings: Settings) -> list[Device]:
    """In the order that the settings name them. The memory setting is the first one's."""
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
