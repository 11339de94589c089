"""A device's memory as one bar: who holds what, in the order of how hard it is to get back. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from engine.view import DeviceView, EngineView
from web.console import words

WIDTH = 1000
"""Units that the bar is wide, whatever the device."""


@dataclass(frozen=True, slots=True)
class Part:
    kind: str
    label: str
    size_bytes: int
    x: float
    width: float

    @property
    def said(self) -> str:
        return words.size(self.size_bytes)

    @property
    def title(self) -> str:
        """The label, and what it means where that is in no other word."""
        return f"{self.label}: {UNATTRIBUTED}" if self.kind == "unattributed" else self.label


@dataclass(frozen=True, slots=True)
class Bar:
    number: int
    name: str
    kind: str
    parts: tuple[Part, ...]
    used_bytes: int
    budget_bytes: int
    total_bytes: int
    line: float
    """Where the headroom begins."""
    unattributed_bytes: int
    slots: int
    busy: int
    alarm: str
    computing: float | None
    """Share of the time, as the driver saw it; None where it does not tell."""
    temperature: float | None
    """Degrees Celsius."""

    @property
    def said(self) -> str:
        return f"{words.size(self.used_bytes)} of {words.size(self.budget_bytes)}"

    @property
    def heat(self) -> str:
        return words.NONE if self.temperature is None else f"{self.temperature:.0f} °C"

    def cells(self) -> dict[str, object]:
        name = f"d{self.number}"
        found: dict[str, object] = {
            f"{name}-said": self.said,
            f"{name}-slots": f"{self.busy} of {self.slots}",
            f"{name}-alarm": self.alarm,
            f"{name}-util": words.share(self.computing),
            f"{name}-heat": self.heat,
        }
        for part in self.parts:
            found[f"{name}-{part.kind}"] = [round(part.x, 1), round(part.width, 1)]
            found[f"{name}-{part.kind}-said"] = part.said
        return found


def bars(view: EngineView) -> list[Bar]:
    return [_bar(number, device, view) for number, device in enumerate(view.devices)]


def _bar(number: int, device: DeviceView, view: EngineView) -> Bar:
    here = [r for model in view.models for r in model.residencies if r.device == device.name]
    pinned = sum(r.weights_bytes for r in here if r.pinned)
    coming = sum(r.weights_bytes for r in here if r.state == "loading" and not r.pinned)
    lines = device.lines
    sizes = {
        "context": lines.get("context", 0),
        "pinned": pinned,
        "resident": max(0, lines.get("weights", 0) - pinned - coming),
        "loading": coming,
        "workspace": lines.get("workspace", 0) + lines.get("kv", 0),
        "foreign": lines.get("foreign", 0),
        "unattributed": max(0, device.unattributed_bytes),
    }
    total = max(1, device.total_bytes)
    parts, x = [], 0.0
    for kind, size in sizes.items():
        width = min(WIDTH - x, WIDTH * size / total)
        parts.append(Part(kind, LABELS[kind], size, x, width))
        x += width
    return Bar(
        number=number,
        name=device.name,
        kind=device.kind,
        parts=tuple(parts),
        used_bytes=device.used_bytes,
        budget_bytes=device.budget_bytes,
        total_bytes=device.total_bytes,
        line=WIDTH * device.budget_bytes / total,
        unattributed_bytes=device.unattributed_bytes,
        slots=device.slots,
        busy=device.busy_slots,
        alarm=device.alarm,
        computing=device.utilisation,
        temperature=device.temperature,
    )


UNATTRIBUTED = (
    "what this process holds here beyond the lines of the ledger; it is not counted against the budget, the "
    "headroom is there for it"
)
LABELS = {
    "context": "context",
    "pinned": "pinned",
    "resident": "resident",
    "loading": "loading",
    "workspace": "workspace and KV",
    "foreign": "other processes",
    "unattributed": "unattributed",
}
