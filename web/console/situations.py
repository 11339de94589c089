"""What may be done to a model or to one of its units now, and what each act would cost."""

from __future__ import annotations

from dataclasses import replace

from engine.catalog import ModelSpec
from engine.orders import Action
from engine.units import adapted, base
from engine.view import ResidencyView
from web.console import adapters, costs
from web.console.adapters import Adapter
from web.console.costs import Cost, Situation
from web.console.hub import Hub, row_of
from web.console.rows import Row
from web.engine import Engine

OF_UNITS = frozenset({Action.PIN, Action.UNPIN, Action.LOAD, Action.UNLOAD})
"""What is done to one unit; everything else is done to the whole model."""


def target(engine: Engine, said: str, action: Action | None = None) -> str:
    """What is acted on: a model, or as `model:profile` a unit of its own or a profile's limits, or as
    `model:adapter` an adapter.

    Raises UnknownModel, and InvalidInput for a profile that there is not.
    """
    spec, profile, adapter = engine.catalog.named(said)
    if adapter is not None:
        return adapted(spec.id, adapter)  # what is not done to adapters the engine refuses
    if profile is None or (action not in (None, Action.ADJUST) and action not in OF_UNITS):
        return spec.id
    return f"{spec.id}:{profile}"


def acts(hub: Hub, name: str) -> list[tuple[Action, Cost]]:
    """What makes sense now: of pin and unpin, pause and resume one each."""
    now = situation(hub, name)
    spec, profile, adapter = hub.engine.catalog.named(name)
    if now is not None and adapter is not None:
        return [(action, costs.of(action, now)) for action in _adapter(hub, spec, adapter).acts]
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
    spec, profile, adapter = engine.catalog.named(name)
    row = row_of(hub, spec.id)
    if row is None:
        return None
    if adapter is not None:
        return _of_adapter(hub, spec, row, _adapter(hub, spec, adapter))
    here = _residencies(hub, spec)
    if profile is not None:
        mine = [r for r in here if base(r.unit) == spec.unit(profile)]
        held = sum(r.weights_bytes for r in mine)
        state = "loaded" if held else "available"
        row = replace(row, size_bytes=held, pinned=any(r.pinned for r in mine), state=state)
    unit = engine.closely.unit(spec.unit(profile))
    leaving = () if row.size_bytes else _leaving(hub, spec, unit.weights_bytes or 0)
    tally = engine.closely.journal.models.get(spec.id)
    return Situation(
        row=row,
        unit=unit,
        leaving=leaving,
        displaced=engine.closely.displaced(spec.unit(profile)),
        recent=tally is not None and engine.now() - tally.last < costs.RECENTLY,
        drain_limit=engine.settings.drain_limit,
        generative="generate" in row.tasks,
        pinned_adapters=adapters.pinned_of(spec.unit(profile), here),
    )


def of_model(hub: Hub, spec: ModelSpec) -> list[Adapter]:
    """The model's adapters as they are now."""
    return adapters.adapters(spec, _residencies(hub, spec))


def _adapter(hub: Hub, spec: ModelSpec, name: str) -> Adapter:
    return next(each for each in of_model(hub, spec) if each.name == name)


def _residencies(hub: Hub, spec: ModelSpec) -> list[ResidencyView]:
    return [r for m in hub.view.models if m.id == spec.id for r in m.residencies]


def _leaving(hub: Hub, spec: ModelSpec, taken: int) -> tuple[str, ...]:
    """Units that would make room for so many bytes more of it."""
    device = next((d.name for d in hub.view.devices if d.kind in spec.devices), "")
    return tuple(each.unit for each in hub.engine.closely.would_leave(device, taken) or ()) if taken else ()


def _of_adapter(hub: Hub, spec: ModelSpec, row: Row, adapter: Adapter) -> Situation:
    """Where the model is not there, it comes with its adapter, and takes room too."""
    closely = hub.engine.closely
    unit, under = closely.unit(adapter.unit), closely.unit(spec.unit())
    alone = row.state in ("available", "failed")
    takes = (unit.weights_bytes or 0) + ((under.weights_bytes or 0) if alone else 0)
    leaving = () if adapter.size_bytes else _leaving(hub, spec, takes)
    its = replace(
        row,
        state=adapter.state,
        size_bytes=adapter.size_bytes,
        pinned=adapter.pinned,
        why=adapter.why,
        waiting=0,
        in_flight=adapter.leases,
    )
    return Situation(
        row=its,
        unit=unit,
        leaving=tuple(each for each in leaving if base(each) != spec.unit()),
        displaced=closely.displaced(adapter.unit),
        recent=adapter.idle < costs.RECENTLY,
        brings=spec.id if alone else "",
    )


def parts(spec: ModelSpec) -> list[tuple[str, bool]]:
    """Its profiles as `model:profile`, and whether each is a unit of its own."""
    return [(f"{spec.id}:{name}", spec.unit(name) != spec.id) for name in spec.profiles]
