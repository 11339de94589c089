"""The form for a model's limits, class and share: what may be written, what is in force, and whence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.adjustments import BOUNDS, KEYS, check
from web.engine import Engine

LABELS = {
    "max_batch_cost": "Most cost of a batch",
    "max_batch_jobs": "Most jobs of a batch",
    "max_item_bytes": "Most bytes of an item",
    "max_item_cost": "Most cost of an item",
    "max_slots": "Most slots at once",
    "max_running": "Most sequences at once",
    "weight": "Share of device time (weight)",
    "service_class": "Class",
}
CLASSES = ("interactive", "standard", "background")


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    label: str
    value: str
    """As it was adjusted; empty where it was not."""
    entry: str
    """As the entry has it."""
    choices: tuple[str, ...] = ()


def fields(engine: Engine, target: str) -> list[Field]:
    """A profile has limits only."""
    spec, profile = engine.catalog.resolve(target)
    adjusted = engine.operators.adjusted(target)
    entry = engine.operators.entry(spec.id).profiled(profile)
    return [
        Field(
            name,
            LABELS[name],
            str(adjusted.get(name, "")),
            _said(getattr(entry.limits if name in BOUNDS else entry, name)),
            CLASSES if name == "service_class" else (),
        )
        for name in (KEYS if profile is None else BOUNDS)
    ]


def changes(form: Mapping[str, str], target: str) -> dict[str, object]:
    """What a form asks for; an empty field is as the entry says. Raises InvalidInput."""
    said: dict[str, object] = {name: form[name].strip()[:40] or None for name in KEYS if name in form}
    given = check(target, {name: value for name, value in said.items() if value is not None})
    return {name: given.get(name) for name in said}


def before(engine: Engine, target: str, changed: Mapping[str, object]) -> dict[str, str]:
    """The fields of a form that takes these changes back."""
    adjusted = engine.operators.adjusted(target)
    return {name: str(adjusted.get(name, "")) for name in changed}


def _said(value: object) -> str:
    return "no bound" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
