"""Twelve models on a card with room for four: how much traffic it carries on time, and beside FIFO and LRU.

Open-loop Poisson arrivals, Zipf(1.0) over the models, lognormal costs, in virtual time on the very cores
that serve. Weights 0.3 to 3 GiB, loads 0.2 to 2 s, two slots, run times linear in cost with a base, as
small encoders have. Two mixes: `equal`, every model's requests due within 10 s; `tiers`, the three most
asked for are standard (2 s), the others background (60 s), and the three fit beside any one of the others.
The knee is the arrival rate at which one request in twenty is late, found by bisection; the objective is
that at 80 % of it, with other arrivals, at least 99 in 100 are on time. The same arrivals go to one FIFO
queue with an LRU cache of models (`loadtests/fifo.py`). About three minutes.
`--live` is the same against a real server on this CPU: see `loadtests/many_live.py`.
`python -m loadtests.many_models`; exits with 1 when an objective is missed.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from engine.requests import ServiceClass
from engine.scheduling.rules import SchedulingRules
from loadtests import many_live
from loadtests.cards import Unchecked
from loadtests.fifo import Arrival, Fifo
from loadtests.tables import table, verdict
from tests.engine.twin import Sim

GIB = 2**30
MODELS, ROOM_FOR, SLOTS, BATCH_COST = 12, 4, 2, 2048
WORKSPACE_PER_COST = 20_000
KNEE, PART, GOAL = 0.95, 0.8, 0.99
DRAIN = 90.0
"""Seconds that late answers are waited for."""


@dataclass(frozen=True, slots=True)
class Mix:
    """Who asks for what how urgently: targets in seconds, and the class of each model by rank."""

    name: str
    targets: Mapping[ServiceClass, float]
    classes: tuple[ServiceClass, ...]

    def target(self, unit: str) -> float:
        return self.targets[self.service_class(unit)]

    def service_class(self, unit: str) -> ServiceClass:
        return self.classes[int(unit[1:])]


DEFAULTS = SchedulingRules().targets
STANDARD, BACKGROUND = ServiceClass.STANDARD, ServiceClass.BACKGROUND
MIXES = (
    Mix("equal", {**DEFAULTS, STANDARD: 10.0}, (STANDARD,) * MODELS),
    Mix("tiers", DEFAULTS, (STANDARD,) * 3 + (BACKGROUND,) * (MODELS - 3)),
)


@dataclass(frozen=True, slots=True)
class Seen:
    """Of the requests that came after the start-up: the share on time, and models loaded a second."""

    goodput: float
    loads_per_second: float


@dataclass(frozen=True, slots=True)
class Row:
    mix: str
    knee: float
    ours: Seen
    fifo: Seen
    fifo_knee: float


Serve = Callable[[Mix, Sequence[Arrival], float], Seen]


def models() -> dict[str, Sim]:
    """By rank of demand; which of them is large is chance."""
    sizes = [int(0.3 * GIB * 10 ** (n / (MODELS - 1))) for n in range(MODELS)]
    random.Random(298).shuffle(sizes)  # of the three most asked for, each is about a GiB or less
    return {
        f"m{n}": Sim(
            f"m{n}",
            weights=size,
            load_seconds=size / (1.5 * GIB),
            per_batch=0.004,
            per_cost=1e-4 * size / GIB,
            workspace_per_cost=WORKSPACE_PER_COST,
            facts={"max_batch_cost": BATCH_COST},
        )
        for n, size in enumerate(sizes)
    }


def arrivals(rate: float, seconds: float, seed: int) -> list[Arrival]:
    rng, now, found = random.Random(seed), 0.0, list[Arrival]()
    ranks = [1 / (n + 1) for n in range(MODELS)]
    while (now := now + rng.expovariate(rate)) < seconds:
        cost = min(512, max(4, int(rng.lognormvariate(math.log(30), 0.8))))
        found.append(Arrival(now, f"m{rng.choices(range(MODELS), ranks)[0]}", cost))
    return found


def room(sims: Mapping[str, Sim]) -> tuple[int, int]:
    """Bytes of four average models, and of the batches that run."""
    return sum(s.weights for s in sims.values()) * ROOM_FOR // MODELS, SLOTS * BATCH_COST * WORKSPACE_PER_COST


def ours(mix: Mix, traffic: Sequence[Arrival], seconds: float) -> Seen:
    sims = models()
    twin = Unchecked(
        *sims.values(), memory=sum(room(sims)), slots=SLOTS, rules=SchedulingRules(targets=mix.targets)
    )
    jobs: dict[int, str] = {}

    def send(place: int, arrival: Arrival) -> None:
        jobs[place] = twin.submit(arrival.unit, arrival.cost, mix.service_class(arrival.unit))

    for place, arrival in enumerate(traffic):
        twin.at(arrival.at, lambda place=place, arrival=arrival: send(place, arrival))  # type: ignore[misc]
    twin.run(until=seconds + DRAIN)
    ended = {p: twin.outcomes[j][0][1] for p, j in jobs.items() if twin.outcome(j) == "ok"}
    loads = sum(change.event == "loaded" for change in twin.changes)
    return Seen(goodput(mix, traffic, ended, seconds), loads / (seconds + DRAIN))


def fifo(mix: Mix, traffic: Sequence[Arrival], seconds: float) -> Seen:
    sims = models()
    card = Fifo(sims, room(sims)[0], SLOTS, BATCH_COST)
    card.run(traffic, until=seconds + DRAIN)
    return Seen(goodput(mix, traffic, card.ended, seconds), card.loads / (seconds + DRAIN))


def goodput(mix: Mix, traffic: Sequence[Arrival], ended: Mapping[int, float], seconds: float) -> float:
    """The first fifth is start-up, where all of it is cold, and does not count."""
    counted = [(p, a) for p, a in enumerate(traffic) if a.at >= seconds / 5]
    on_time = sum(ended.get(p, math.inf) - a.at <= mix.target(a.unit) for p, a in counted)
    return on_time / len(counted)


def knee(serve: Serve, mix: Mix, seconds: float, steps: int) -> float:
    """Requests a second at which the goodput falls to `KNEE`; 0 when it is never that high."""
    low, high = 1.0, 1024.0
    if serve(mix, arrivals(low, seconds, 1), seconds).goodput < KNEE:
        return 0.0
    for _ in range(steps):
        rate = math.sqrt(low * high)
        if serve(mix, arrivals(rate, seconds, 1), seconds).goodput >= KNEE:
            low = rate
        else:
            high = rate
    return low


def measure(mix: Mix, seconds: float, steps: int) -> Row:
    rate = knee(ours, mix, seconds, steps)
    traffic = arrivals(max(1.0, PART * rate), seconds, seed=2)
    return Row(
        mix.name,
        rate,
        ours(mix, traffic, seconds),
        fifo(mix, traffic, seconds),
        knee(fifo, mix, seconds, steps),
    )


def show(rows: Sequence[Row]) -> str:
    heads = ["", "knee, requests/s", f"on time at {PART:.0%} (goal {GOAL:.0%})", "loads/s"]
    lines = []
    for row in rows:
        lines.append(
            [row.mix, f"{row.knee:.0f}", f"{row.ours.goodput:.2%}", f"{row.ours.loads_per_second:.2f}"]
        )
        beside = [f"{row.fifo_knee:.0f}", f"{row.fifo.goodput:.2%}", f"{row.fifo.loads_per_second:.2f}"]
        lines.append([f"{row.mix}, FIFO + LRU, the same arrivals", *beside])
    return table(heads, lines)


def missed(rows: Sequence[Row]) -> list[str]:
    return [
        f"{row.mix}: {row.ours.goodput:.2%} on time at {PART:.0%} of the knee (goal {GOAL:.0%})"
        for row in rows
        if row.ours.goodput < GOAL or row.knee <= 0
    ]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0, help="of virtual time for each rate")
    parser.add_argument("--quick", action="store_true", help="short and coarse, to see that it runs")
    parser.add_argument("--live", action="store_true", help="a real server with the starter models")
    chosen = parser.parse_args(arguments)
    if chosen.live:
        return many_live.run(chosen.quick)
    seconds, steps = (10.0, 3) if chosen.quick else (chosen.seconds, 8)
    rows = [measure(mix, seconds, steps) for mix in MIXES]
    print(show(rows))
    return verdict(missed(rows))


if __name__ == "__main__":
    sys.exit(main())
