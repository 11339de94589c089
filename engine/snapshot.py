"""How the server is when a recording begins, and what it had learned at its end. Plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import anyio

from engine import __version__
from engine.config import Settings
from engine.declarations import declarations
from engine.devices.device import Device
from engine.memory.custody import Custody
from engine.scheduling.dispatch import Dispatch
from engine.units import Units, base
from engine.wishes import Pinned


class Snapshotting:
    def __init__(
        self,
        settings: Settings,
        units: Units,
        custody: Custody,
        dispatch: Dispatch,
        devices: Sequence[Device],
        pins: Mapping[str, Pinned],
    ) -> None:
        self._settings = settings
        self._units = units
        self._custody = custody
        self._dispatch = dispatch
        self._devices = devices
        self._pins = pins

    def take(self) -> dict[str, Any]:
        """Secrets are left out."""
        settings = self._settings.model_dump(mode="json")
        held = self._custody.held
        return {
            "server": __version__,
            "settings": {d.name: settings[d.name] for d in declarations() if not d.secret},
            "devices": [self._device(device) for device in self._devices],
            "host_memory": held.host.budget_bytes,
            "pins": [asdict(pin) for pin in self._pins.values()],
            "residents": self._residents(),
            **self.learned(),
        }

    def learned(self) -> dict[str, Any]:
        """What is known better when a recording ends than when it began."""
        held = self._custody.held
        return {
            "models": [spec.model_dump(mode="json", exclude_defaults=True) for spec in self._units.catalog],
            "footprints": {base(unit): asdict(found) for unit, found in held.footprints.items()},
            "curves": [
                {"unit": base(unit), "device": device, "points": curve.points()}
                for (unit, device), curve in self._dispatch.sizing.curves.items()
                if curve
            ],
            "workspaces": [
                {"unit": base(unit), "device": device, "seen": seen}
                for (unit, device), seen in self._custody.learned().items()
            ],
            "loads": [
                {
                    "unit": base(r.unit),
                    "device": r.device,
                    "load_seconds": r.load_seconds,
                    "restore_seconds": r.restore_seconds,
                }
                for r in held.residents.values()
            ],
        }

    def _device(self, device: Device) -> dict[str, Any]:
        return {
            "name": device.name,
            "kind": device.kind,
            "slots": device.slots,
            "total_bytes": device.total_bytes,
            "context_bytes": device.context_bytes,
            "host_tier": device.host_tier,
        }

    def _residents(self) -> list[dict[str, Any]]:
        """Units that were ever on a device."""
        now = anyio.current_time()
        return [
            {
                "unit": base(r.unit),
                "device": r.device,
                "state": str(r.state),
                "pinned": r.pinned,
                "idle": max(0.0, now - r.last_used),
                "demand": r.demand,
            }
            for r in self._custody.held.residents.values()
        ]
