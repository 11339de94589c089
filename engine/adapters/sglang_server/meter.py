"""How much of a card other processes of ours hold. Not run on the machines this was built on."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import torch

from engine.devices.nvml import Nvml


@dataclass(frozen=True, slots=True)
class Meter:
    """Of the device with this torch name. One that is no card tells nothing."""

    device: str

    def free(self) -> int | None:
        """Bytes that anybody could take."""
        if not self.device.startswith("cuda"):
            return None
        free, _ = torch.cuda.mem_get_info(self.device)
        return int(free)

    def held(self, pids: Collection[int]) -> int | None:
        """By these processes; where the driver does not know them, by everybody."""
        if not self.device.startswith("cuda"):
            return None
        nvml = Nvml.open(f"GPU-{torch.cuda.get_device_properties(self.device).uuid}")
        own = nvml.bytes_of(pids) if nvml else None
        if own is not None:
            return own
        free, total = torch.cuda.mem_get_info(self.device)
        return int(total - free)
