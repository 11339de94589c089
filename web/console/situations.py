"""What may be done to a model or to one of its units now, and what each act would cost."""

from __future__ import annotations

from dataclasses import replace

from engine.catalog import ModelSpec
from engine.orders import Action
from engine.units import base
from web.console import costs
from web.console.costs import Cost, Situation
from web.console.hub import Hub, row_of
from web.engine import Engine

OF_UNITS = frozenset({Action.PIN, Action.UNPIN, Action.LOAD, Action.UNLOAD})
"""What is done to one unit; everything else is done to the whole model."""


def target(engine: Engine, said: str, action: Action | None = None) -> str:
    """What is acted on: a model, or as `model:profile` a unit of its own or a profile's limits.

    Raises UnknownModel, and InvalidInput for a profile that there is not.
    """
    spec, profile = engine.catalog.resolve(said)
    if profile is None or (action not in (None, Action.ADJUST) and action not in OF_UNITS):
        return spec.id
    return f"{spec.id}:{profile}"


def acts(hub: Hub, name: str) -> list[tuple[Action, Cost]]:
    """What makes sense now: of pin and unpin, pause and resume one each."""
    now = situation(hub, name)
    spec, profile = hub.engine.catalog.resolve(name)
    if now is None or (profile and spec.unit(profile) == spec.id):
        return []  # a profile of the same weights is where its model is
    row = now.row
    offered = [
        Action.UNPIN if row.pinned else Action.PIN,
        *([Action.LOAD] if row.state in ("available", "failed") else []),
        *([Action.UNLOAD] if row.size_bytes and not row.pinned else []),
        Action.RESUME if row.paused else Action.PAUSE,
        *([] if row.pinned else [Action.DRAIN]),
        *([Action.RELOAD] if row.state == "loaded" else []),
    ]
    whole = ":" not in name
    return [(action, costs.of(action, now)) for action in offered if whole or action in OF_UNITS]


def situation(hub: Hub, name: str) -> Situation | None:
    """None for what has only just come."""
    engine = hub.engine
    spec, profile = engine.catalog.resolve(name)
    row = row_of(hub, spec.id)
    if row is None:
        return None
    if profile is not None:
        here = [r for m in hub.view.models if m.id == spec.id for r in m.residencies]
        mine = [r for r in here if base(r.unit) == spec.unit(profile)]
        held = sum(r.weights_bytes for r in mine)
        state = "loaded" if held else "available"
        row = replace(row, size_bytes=held, pinned=any(r.pinned for r in mine), state=state)
    unit = engine.closely.unit(spec.unit(profile))
    leaving: tuple[str, ...] = ()
    if not row.size_bytes and unit.weights_bytes:
        device = next((d.name for d in hub.view.devices if d.kind in spec.devices), "")
        leaving = tuple(each.unit for each in engine.closely.would_leave(device, unit.weights_bytes) or ())
    tally = engine.closely.journal.models.get(spec.id)
    return Situation(
        row=row,
        unit=unit,
        leaving=leaving,
        displaced=engine.closely.displaced(spec.unit(profile)),
        recent=tally is not None and engine.now() - tally.last < costs.RECENTLY,
        drain_limit=engine.settings.drain_limit,
        generative="generate" in row.tasks,
    )


def parts(spec: ModelSpec) -> list[tuple[str, bool]]:
    """Its profiles as `model:profile`, and whether each is a unit of its own."""
    return [(f"{spec.id}:{name}", spec.unit(name) != spec.id) for name in spec.profiles]
