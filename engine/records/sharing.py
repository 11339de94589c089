"""A recording that may be given away: who asked and for what is gone, times are from zero, sizes coarse.

What is left is its shape: which model, how much, when, how long it took.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

EXACT = 16
"""Sizes up to this are told as they are; above it four bits of each are."""

_SIZES = ("cost", "input_tokens", "output_tokens", "kv_tokens", "bytes_in", "tokens")
_DROPPED = ("principal", "reason", "profile", "degraded_from", "held_bytes")


def coarse(size: int) -> int:
    """The nearest size of four bits: within a sixteenth."""
    if size <= EXACT:
        return size
    step = 1 << (size.bit_length() - 4)
    return (size + step // 2) // step * step


class Sharing:
    """One export. Names become numbers in the order in which they come."""

    def __init__(self) -> None:
        self._numbers: dict[str, dict[str, str]] = {}

    def header(self, found: Mapping[str, Any]) -> dict[str, Any]:
        devices = found["snapshot"].get("devices", [])
        kept = {"devices": devices} if devices else {}
        return {**found, "name": "shared", "started_at": 0.0, "snapshot": kept, "shareable": True}

    def row(self, said: str, found: Mapping[str, Any]) -> dict[str, Any] | None:
        """None for what is not told at all."""
        if said == "act":
            return None
        made = {name: value for name, value in found.items() if name not in _DROPPED}
        for name in _SIZES:
            if isinstance(made.get(name), int):
                made[name] = coarse(made[name])
        if said == "request":
            self._request(made)
        if "unit" in made:
            made["unit"] = self._unit(made["unit"])
        if "units" in made:
            made["units"] = {self._unit(unit): size for unit, size in made["units"].items()}
        return made

    def _request(self, made: dict[str, Any]) -> None:
        made["request"] = self._named("r", str(made.get("request", "")))
        made["model"] = self._named("model-", str(made["model"]))
        if made.get("session"):
            made["session"] = self._named("s", str(made["session"]))
        costs = [coarse(int(cost)) for cost in str(made.get("costs", "")).split(",") if cost]
        if costs:
            made["costs"], made["cost"] = ",".join(map(str, costs)), sum(costs)

    def _unit(self, unit: str) -> str:
        """Its model's number; what sets it apart from other units of the model stays."""
        model = unit.partition("#")[0].partition("@")[0]
        return self._named("model-", model) + unit[len(model) :]

    def _named(self, kind: str, name: str) -> str:
        known = self._numbers.setdefault(kind, {})
        return known.setdefault(name, f"{kind}{len(known) + 1}")
