"""A server as its settings and catalogue describe it: what nobody has to measure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from engine.adapters import simulated
from engine.catalog import Catalog, ModelSpec
from engine.config import Settings
from engine.memory.footprint import Footprint
from engine.parts import memory_rules, scheduling_rules
from engine.units import Units, on_devices, units_of
from replay.twin.server import NEVER, Card, Server, Unit
from replay.twin.timing import Declared, Loads, Timing


def unit_of(
    spec: ModelSpec,
    profile: str | None,
    units: Units,
    *,
    footprint: Footprint,
    timings: Mapping[str, Timing],
    loads: Loads,
    prepare: tuple[tuple[float, ...], ...] = ((0.0,),),
) -> Unit:
    """A catalogue entry's unit, with what is known of its sizes and times."""
    chosen, degrade = spec.profiled(profile), None
    if spec.degrade:
        other, its_profile = units.catalog.resolve(spec.degrade)
        degrade = other.unit(its_profile)
    return Unit(
        facts=units.facts(spec.unit(profile)),
        footprint=footprint,
        timings=timings,
        loads=loads,
        prepare=prepare,
        default_class=spec.default_class,
        max_batch_cost=chosen.limits.max_batch_cost or NEVER,
        max_batch_jobs=chosen.limits.max_batch_jobs or NEVER,
        max_cost=spec.max_tokens or NEVER,
        degrade=degrade,
    )


def server(settings: Settings, cards: Sequence[Card], units: Mapping[str, Unit], host_memory: int) -> Server:
    """These units on these cards, by the rules in the settings."""
    return Server(
        cards=tuple(cards),
        units=units,
        scheduling=scheduling_rules(settings),
        memory=memory_rules(settings),
        headroom=settings.headroom,
        host_memory=host_memory,
        max_hold=settings.max_hold,
        pins=settings.pins,
    )


def simulated_server(settings: Settings, catalog: Catalog, cards: Sequence[Card]) -> Server:
    """Of models that compute nothing and say themselves what they take."""
    known = Units(on_devices(catalog, {card.kind for card in cards}), settings.max_batch_cost)
    units: dict[str, Unit] = {}
    for spec in known.catalog:
        says = msgspec.convert(dict(spec.options), simulated.Declared)
        peak = says.workspace_per_cost if says.peak_per_cost is None else says.peak_per_cost
        timing = Declared(says.seconds_per_batch, says.seconds_per_cost, peak)
        for name, profile in units_of(spec).items():
            units[name] = unit_of(
                spec,
                profile,
                known,
                footprint=simulated.FAMILY.footprint(spec, Path()),
                timings={"simulated": timing},
                loads=Loads((says.load_seconds,), (says.restore_seconds,)),
            )
    return server(settings, cards, units, settings.host_memory or 0)
