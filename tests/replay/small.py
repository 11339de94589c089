"""A small server and traffic for plans: two models that fit, a third that does not beside them."""

from __future__ import annotations

import numpy as np

from engine.memory.footprint import Footprint
from engine.units import UnitFacts
from replay.trace import Trace
from replay.twin.server import Card, Server, Unit
from replay.twin.timing import Declared, Loads
from replay.twin.traffic import Traffic

GIB = 2**30


def unit(name: str, weights: int = GIB, per_batch: float = 0.1, **fields: object) -> Unit:
    facts = UnitFacts(name, name, ("simulated",), max_batch_cost=64)
    return Unit(
        facts=facts,
        footprint=Footprint(weights, 0, 1024.0),
        timings={"simulated": Declared(per_batch, 0.001)},
        loads=Loads((0.5,), (0.05,)),
        **fields,  # type: ignore[arg-type]
    )


def server(*units: Unit, memory: int = 3 * GIB, slots: int = 1, **fields: object) -> Server:
    known = {each.name: each for each in units or (unit("a"), unit("b"))}
    card = Card("simulated:0", "simulated", slots, memory)
    return Server((card,), known, resident=tuple(known), **fields)  # type: ignore[arg-type]


def traffic(on: Server, rate: float = 1.0, seconds: float = 300.0, seed: int = 0, **shares: float) -> Traffic:
    """Random arrivals; each model's share of them, by default the same for all."""
    rng = np.random.default_rng(seed)
    times = np.sort(rng.uniform(0, seconds, rng.poisson(rate * seconds)))
    names = list(shares or on.units)
    weights = np.array(list(shares.values()) or [1.0] * len(names))
    which = rng.choice(len(names), len(times), p=weights / weights.sum())
    sizes = rng.integers(5, 60, len(times))
    return Traffic.of(Trace.of("small", times, models=[names[n] for n in which], input_size=sizes), on)
