"""Other servers and other traffic around those that were recorded, to be tried in earnest and in the twin.

A planner needs the order of its choices more than their absolute figures; these are choices.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from engine.config import Settings
from engine.parts import memory_rules, scheduling_rules
from replay.trace import Trace
from replay.twin.server import Server, Unit
from replay.twin.traffic import Traffic

MARGIN = 30 * 2**20
"""Bytes for batches, beside weights that only just fit."""


@dataclass(frozen=True, slots=True)
class Configuration:
    name: str
    changed: Mapping[str, Any] = field(default_factory=dict)
    """Settings that differ."""
    speed: float = 1.0
    """Of the traffic."""
    cold: bool = False
    """Nothing is there when the traffic begins; else all is that the traffic asks for, where it fits."""

    def settings(self, settings: Settings) -> Settings:
        return settings.model_copy(update=dict(self.changed))

    def trace(self, trace: Trace) -> Trace:
        return replace(trace, arrived=trace.arrived / self.speed)

    def server(self, server: Server, settings: Settings) -> Server:
        """The measured server, as these settings would have it: just opened, nothing is learned."""
        own, first = self.settings(settings), server.cards[0]
        card = replace(first, slots=own.slots or first.slots, memory_bytes=own.memory or first.memory_bytes)
        units = {name: _bounded(unit, own.max_batch_cost) for name, unit in server.units.items()}
        made = replace(
            server,
            cards=(card, *server.cards[1:]),
            units=units,
            scheduling=scheduling_rules(own),
            memory=memory_rules(own),
            headroom=own.headroom,
            pins=tuple(pin for pin in own.pins if pin in units),
            resident=(),
            curves={},
            workspaces={},
        )
        return made if self.cold or not fits(made) else replace(made, resident=tuple(units))


def _bounded(unit: Unit, max_batch_cost: int | None) -> Unit:
    if max_batch_cost is None:
        return unit
    return replace(
        unit, facts=replace(unit.facts, max_batch_cost=min(unit.facts.max_batch_cost, max_batch_cost))
    )


def around(server: Server, traffic: Traffic) -> list[Configuration]:
    """Up to eleven, the server as it was first: slots, sizes of batches, memory, pins, eviction, the window
    and the speed of the traffic."""
    costs = [cost for index in traffic.trace.input_size.tolist() for cost in traffic.shapes[index].costs]
    usual = float(np.median(costs))
    return [Configuration("as it is"), *_rules(server, usual), *_memory(server, traffic.trace), *_speeds()]


def _rules(server: Server, usual: float) -> Iterator[Configuration]:
    slots, small = server.cards[0].slots, {"max_batch_cost": max(1, round(2 * usual))}
    other = {"slots": slots - 1 if slots > 1 else 2}
    said = f"{other['slots']} of {slots} slots" if slots > 1 else "two slots"
    yield Configuration(said, other)
    yield Configuration("small batches", small)
    yield Configuration(f"{said}, small batches", {**other, **small})
    yield Configuration("no window", {"window_share": 0.0})


def _memory(server: Server, trace: Trace) -> Iterator[Configuration]:
    """Nothing is there at first; or all but the smallest model fits."""
    yield Configuration("nothing there at first", cold=True)
    asked = [trace.models[n] for n in np.argsort(-np.bincount(trace.model, minlength=len(trace.models)))]
    weights = [unit.footprint.weights_bytes for unit in server.units.values()]
    if len(weights) < 2:
        return
    tight = {"memory": tight_bytes(weights, server.headroom) + server.cards[0].context_bytes}
    yield Configuration("less memory", tight)
    yield Configuration("less memory, evicts what was used longest ago", {**tight, "eviction": "lru"})
    # With two models a pin would keep the other one out.
    if len(weights) > 2:
        yield Configuration("less memory, the busiest pinned", {**tight, "pins": (asked[0],)})


def _speeds() -> Iterator[Configuration]:
    yield Configuration("traffic twice as fast", speed=2.0)
    yield Configuration("traffic half as fast", speed=0.5)


def tight_bytes(weights: Collection[int], headroom: float) -> int:
    """Of a device on which all but the smallest of these fit at once."""
    return round((sum(weights) - min(weights) / 2) / (1 - headroom)) + MARGIN


def fits(server: Server) -> bool:
    """Whether all units may be on the first card at once, with room for batches."""
    card = server.cards[0]
    weights = sum(unit.footprint.weights_bytes for unit in server.units.values())
    return weights + MARGIN + card.context_bytes <= card.memory_bytes * (1 - server.headroom)
