"""What the devices did in a replay or a recording: bytes at their peak, how busy, how many loads. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from replay.recording import Recording
from replay.replaying.target import Look

Looks = Sequence[tuple[float, Look]]


@dataclass(frozen=True, slots=True)
class DeviceFigures:
    name: str
    peak_bytes: int
    budget_bytes: int
    busy_share: float
    """Of all its slots' time."""
    times: tuple[float, ...]
    used: tuple[int, ...]
    """Bytes at each of `times`."""


def of_looks(looks: Looks) -> list[DeviceFigures]:
    by_name: dict[str, list[tuple[float, Mapping[str, Any]]]] = {}
    for at, look in looks:
        for device in look.devices:
            by_name.setdefault(device["name"], []).append((at, device))
    return [_figures(name, seen) for name, seen in by_name.items()]


def of_recording(recording: Recording) -> list[DeviceFigures]:
    by_name: dict[str, list[tuple[float, Mapping[str, Any]]]] = {}
    for sample in recording.samples:
        used = {**sample, "used_bytes": sum(sample.get("lines", {}).values())}
        by_name.setdefault(str(sample.get("device")), []).append((float(sample["at"]), used))
    return [_figures(name, seen) for name, seen in by_name.items()]


def _figures(name: str, seen: Sequence[tuple[float, Mapping[str, Any]]]) -> DeviceFigures:
    (first_at, first), (last_at, last) = seen[0], seen[-1]
    slots = max(1, int(last.get("slots", 1)))
    busy = float(last.get("busy_seconds", 0.0)) - float(first.get("busy_seconds", 0.0))
    used = [int(device.get("used_bytes", 0)) for _, device in seen]
    return DeviceFigures(
        name=name,
        peak_bytes=max(used),
        budget_bytes=int(last.get("budget_bytes", 0)),
        busy_share=busy / max(last_at - first_at, 1e-9) / slots if last_at > first_at else 0.0,
        times=tuple(at for at, _ in seen),
        used=tuple(used),
    )


def loads_of_looks(looks: Looks) -> dict[str, int]:
    """By model, while it was looked at."""
    told = [look.loads for _, look in looks if look.loads]
    if not told:
        return {}
    return {m: n - told[0].get(m, 0) for m, n in told[-1].items() if n > told[0].get(m, 0)}


def loads_of_recording(recording: Recording) -> dict[str, int]:
    found: dict[str, int] = {}
    for change in recording.changes:
        if change.get("event") == "loaded":
            model = str(change["unit"]).partition("#")[0].partition("@")[0]
            found[model] = found.get(model, 0) + 1
    return found
