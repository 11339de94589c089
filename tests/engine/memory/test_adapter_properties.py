"""Random traffic over units with adapters, through both cores: books balance and nobody waits for ever."""

from __future__ import annotations

import math
import random

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from engine.memory.rules import EvictionPolicy, MemoryRules
from engine.requests import ServiceClass
from tests.engine.twin import Sim, Twin

quickly = settings(deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate), max_examples=40)
ADAPTERS = "pqr"
MAX_HOLD = 100.0


def drawn_sims(rng: random.Random) -> list[Sim]:
    """Up to three units, the first two of which have adapters; some generate, and some loads fail."""
    sims = []
    for name in "uvw"[: rng.randint(1, 3)]:
        generates, chance = rng.random() < 0.4, rng.choice([0, 0, 0, 0.3])
        facts = {
            "generative": generates,
            "max_running": rng.choice([1, 4]),
            **({"max_slots": 1} if generates else {}),
        }
        sims.append(
            Sim(
                name,
                weights=rng.randint(50, 400),
                load_seconds=rng.choice([0.1, 0.5, 3]),
                per_batch=rng.choice([0.001, 0.05]),
                workspace_per_cost=rng.choice([0.01, 0.3]),
                kv_per_token=rng.choice([0, 1]) if generates else 0,
                inspect_seconds=rng.choice([0, 1.0]),
                fails=lambda chance=chance: rng.random() < chance,
                facts=facts,
            )
        )
        for adapter in ADAPTERS if name in "uv" else "":
            broken = rng.choice([0, 0, 0, 0.5, 1])
            sims.append(
                Sim(
                    f"{name}:{adapter}",
                    weights=rng.choice([5, 50, 200]),
                    load_seconds=rng.choice([0.05, 2]),
                    workspace_per_cost=0,
                    fails=lambda broken=broken: rng.random() < broken,
                    adapts=name,
                )
            )
    return sims


def drawn_run(seed: int) -> Twin:
    rng = random.Random(seed)
    sims = drawn_sims(rng)
    bases = [sim for sim in sims if sim.adapts is None]
    devices = ("a",) if rng.random() < 0.6 else ("a", "b")
    twin = Twin(
        *sims,
        memory=rng.choice([400, 700, 1000, 2000]),
        slots=rng.choice([1, 2, 4]),
        devices=devices,
        memory_rules=MemoryRules(
            policy=rng.choice(list(EvictionPolicy)),
            loads_at_once=rng.randint(1, 2),
            idle_unload=rng.choice([None, None, 2.0]),
        ),
        host_memory=rng.choice([0, 0, 1000]),
    )

    def ask(sim: Sim) -> None:
        cost, new = rng.choice([1, 10, 48, 300]), rng.choice([1, 5, 50])
        adapters = [other.unit for other in sims if other.adapts == sim.unit]
        read = rng.sample(adapters, min(len(adapters), rng.choice([0, 1, 1, 1, 2])))
        job = twin.submit(
            sim.unit,
            cost,
            rng.choice(list(ServiceClass)),
            deadline=rng.choice([math.inf, math.inf, twin.now + rng.random() * 5]),
            kv_tokens=cost + new if sim.facts["generative"] else 0,
            principal=rng.choice(["", "x"]),
            adapters=tuple(read),
        )
        if rng.random() < 0.1:
            twin.at(twin.now + rng.random() * 3, lambda: twin.cancel(job))
        if len(read) > 1:  # both may never be there at once: what is held too long is given up
            twin.at(twin.now + MAX_HOLD, lambda: give_up(job))

    def give_up(job: str) -> None:
        if twin.outcome(job) is None:
            twin.cancel(job)
            twin.to_dispatch("on_given_up", [twin.jobs[job].unit])

    def happen() -> None:
        if rng.random() < 0.85:
            ask(rng.choice(bases))
            return
        what = rng.choice(["load", "unload", "pin", "unpin"])
        seat = {"device": rng.choice([None, *devices]), "min_slots": rng.choice([1, 1, 2])}
        twin.ask(what, rng.choice(sims).unit, **(seat if what == "pin" else {}))

    span = rng.choice([0.01, 1, 20, 60])
    for _ in range(rng.choice([5, 30, 100])):
        twin.at(rng.random() * span, happen)
    if rng.random() < 0.15:
        twin.at(rng.random() * span, lambda: twin.lose(rng.choice(devices)))
    for sim in sims:  # what is pinned for ever may keep others out for ever
        twin.at(span + 6, lambda sim=sim: twin.ask("unpin", sim.unit))
    return twin


@quickly
@given(st.integers(0, 2**32))
def test_whatever_happens_adapters_stand_on_their_bases_and_everything_comes_to_rest(seed: int):
    twin = drawn_run(seed)

    twin.run()  # ledgers, leases and bases are checked after every message

    twin.check_at_rest()
