"""What is in force for a model, key by key, and where each value came from. Pure.

The entry comes first, then the settings where it is silent, a profile's own values, and above all of them
what an operator adjusted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from engine.catalog import ModelSpec
from engine.config import Settings
from engine.entry import Limits
from engine.quantities import as_duration

ELSEWHERE = ("id", "sources", "profiles", "notes", "description", "limits", "targets", "idle_unload")
BOUNDS = tuple(Limits.model_fields)
NONE: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Told:
    """One key as it counts now, and whence it is."""

    name: str
    value: str
    origin: str


def effective(
    spec: ModelSpec, settings: Settings, adjusted: Callable[[str], Mapping[str, Any]]
) -> Iterator[Told]:
    """`adjusted` tells what operators changed of a model or of `model:profile`."""
    mine = adjusted(spec.id)
    for name in type(spec).model_fields:
        value = getattr(spec, name)
        if name in ELSEWHERE or value in (None, (), {}, ""):
            continue
        said = ", ".join(value) if name == "loras" else written(value)  # of each, its own row tells more
        yield Told(name, said, _origin(name, spec, mine))
    yield from _limits(spec.limits, "limits", "entry", mine, settings)
    yield from _targets(spec, settings)
    yield _idle(spec, settings)
    for profile, chosen in spec.profiles.items():
        own = f"profile {profile}"
        for name in sorted(chosen.model_fields_set - {"limits"}):
            yield Told(f"{own}: {name}", written(getattr(chosen, name)), own)
        if chosen.limits:
            known = adjusted(f"{spec.id}:{profile}")
            yield from _limits(chosen.limits, f"{own}: limits", own, known, settings)


def _origin(name: str, spec: ModelSpec, adjusted: Mapping[str, Any]) -> str:
    return "operator" if name in adjusted else "entry" if name in spec.model_fields_set else "default"


def _limits(
    limits: Limits, prefix: str, whence: str, adjusted: Mapping[str, Any], settings: Settings
) -> Iterator[Told]:
    """Of the entry's bound on a batch and the settings' the smaller one counts."""
    for name in BOUNDS:
        value = getattr(limits, name)
        origin = "operator" if name in adjusted else whence
        most = settings.max_batch_cost if name == "max_batch_cost" else None
        if most and (value is None or most < value):
            value, origin = most, f"settings ({settings.origin('max_batch_cost')})"
        if value is not None:
            yield Told(f"{prefix}.{name}", written(value), origin)


def _targets(spec: ModelSpec, settings: Settings) -> Iterator[Told]:
    for name in ("interactive", "standard", "background"):
        key = f"{name}_target"
        own = spec.targets.get(name)
        value = getattr(settings, key) if own is None else own
        origin = f"settings ({settings.origin(key)})" if own is None else "entry"
        yield Told(f"targets.{name}", as_duration(float(value)), origin)


def _idle(spec: ModelSpec, settings: Settings) -> Told:
    own = spec.idle_unload
    value = settings.idle_unload if own is None else own
    origin = f"settings ({settings.origin('idle_unload')})" if own is None else "entry"
    return Told("idle_unload", "only when memory is short" if value is None else as_duration(value), origin)


def written(value: object) -> str:
    if hasattr(value, "model_dump"):
        value = value.model_dump(exclude_none=True)
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {written(each)}" for key, each in value.items()) or "–"
    if isinstance(value, tuple | list):
        return ", ".join(written(each) for each in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
