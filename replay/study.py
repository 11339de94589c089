"""All that is to be known of one what-if: how it compares, what it carries, what fails first, what it costs.

What `serai plan` answers by its commands one by one, of the changed server and its traffic. Runs the twin.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from replay.atonce import Calls, in_turn
from replay.capacity import Capacity, measure
from replay.comparison import Comparison, compare
from replay.cost import Cost, cost
from replay.holding import Holding, holdings
from replay.plan import Basis
from replay.rules import Check, checks
from replay.search import PinStep, Tuning, pins, tunings
from replay.twin.server import Server
from replay.twin.traffic import Traffic
from replay.twin.twin import simulate
from replay.whatif import Change

Told = Callable[[str, int, int], None]
"""What is done now, which step that is, and how many there are."""


@dataclass(frozen=True, slots=True)
class Asked:
    change: Change
    price: float | None = None
    """Of one card for an hour."""
    search: bool = False
    """Whether pins, windows and weights that are better are looked for."""


@dataclass(frozen=True, slots=True)
class Study:
    comparison: Comparison
    """Against the server as it was recorded."""
    capacity: Capacity
    checks: tuple[Check, ...]
    memory: tuple[Holding, ...]
    budget_bytes: int
    """Of all cards together, less their headroom."""
    pins: tuple[PinStep, ...] | None
    """None where they were not looked for."""
    tunings: tuple[Tuning, ...]
    cost: Cost | None

    @property
    def beyond(self) -> bool:
        return self.comparison.beyond or self.capacity.results.beyond


def study(
    known: Basis, asked: Asked, *, calls: Calls = in_turn, told: Told = lambda said, step, of: None
) -> Study:
    """Raises BadTrace for a change that names a model that is not there."""
    change, seed = asked.change, known.seed
    before = change.part(known.traffic)
    server, traffic = change.server(known.server), change.asked(before, seed)
    steps = 3 + 2 * asked.search + (asked.price is not None)
    told("comparing with the server as it was", 0, steps)
    comparison, now = compare((known.server, before), (server, traffic), seed, calls)
    told("looking for the knee", 1, steps)
    capacity = measure(server, traffic, seed, calls=calls, known=now)
    told("checking the rules", 2, steps)
    rules = tuple(checks(capacity, server, known.days))
    better: tuple[PinStep, ...] | None = None
    tuned: tuple[Tuning, ...] = ()
    if asked.search:
        told("trying pins", 3, steps)
        better = tuple(pins(server, traffic, seed, calls))
        told("trying windows and weights", 4, steps)
        tuned = tuple(tunings(server, traffic, seed, calls))
    money = None
    if asked.price is not None:
        told("working out what it costs", steps - 1, steps)
        money = _cost(server, traffic, capacity, asked.price, seed, calls)
    return Study(
        comparison=comparison,
        capacity=capacity,
        checks=rules,
        memory=tuple(holdings(now.changes, now.span)),
        budget_bytes=round(sum(card.memory_bytes for card in server.cards) * (1 - server.headroom)),
        pins=better,
        tunings=tuned,
        cost=money,
    )


def _cost(
    server: Server, traffic: Traffic, capacity: Capacity, price: float, seed: int, calls: Calls
) -> Cost:
    results = simulate(server, traffic, seed, keep=True)
    return cost(server, traffic, results, capacity.carrying_limit, price, seed, calls)
