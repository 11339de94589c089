"""A ramp on a live engine finds about where it breaks, and keeps every step."""

from __future__ import annotations

import json

import anyio
import numpy as np
import pytest

from replay.knee import WORST
from replay.ramp import Dwell
from replay.replaying.ramping import Climb, Climbing, climb
from replay.replaying.run import maker_for
from replay.replaying.wanted import Wanted, chosen
from replay.replaying.within import Within
from replay.trace import Trace
from replay.virtualtime import VirtualTimeLoop
from tests.simulation import catalog, engine, model

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize(
        "anyio_backend", [("asyncio", {"loop_factory": VirtualTimeLoop})], ids=["virtual"]
    ),
]

# One slot, batches of one: at most 10 a second, whatever waits.
ONE_AT_A_TIME = catalog(
    model("a", limits={"max_batch_jobs": 1}, options={"seconds_per_batch": 0.1, "seconds_per_cost": 0.0})
)


def poisson(rate: float, seconds: float) -> Trace:
    rng = np.random.default_rng(5)
    arrived = np.sort(rng.uniform(0, seconds, int(rate * seconds)))
    return Trace.of("p", arrived, models=["a"] * len(arrived), input_size=np.full(len(arrived), 5))


async def test_the_knee_is_found_below_saturation_by_three_sweeps(anyio_backend):
    saved: list[int] = []
    async with engine(ONE_AT_A_TIME) as opened:
        done = await climb(
            chosen(poisson(5, 200), None, Wanted()),
            Within(opened),
            lambda model, service_class: 1.0,
            seed=1,
            dwell=Dwell(far=10, near=30),
            stop=anyio.Event(),
            after=lambda so_far: saved.append(sum(map(len, so_far.sweeps))),
        )

    knee = done.knee(seed=1)
    assert knee.sweeps == 3 and not done.aborted and not done.void
    # M/D/1 with a p99 of 1 s at 0.1 s a request: near 8 a second; saturation is at 10.
    assert 5.5 < knee.knee_slo < 9.9
    assert list(done.by_model(1)) == ["a, standard"]
    down = [step.offered for step in done.sweeps[2]]
    assert down == sorted(down, reverse=True) and sorted(down) == sorted(s.offered for s in done.sweeps[0])
    assert saved == sorted(saved) and saved[-1] == sum(map(len, done.sweeps))
    told = json.loads(json.dumps(done.as_json(1)))
    first = told["sweeps"][0][-1]["parts"]["a, standard"]
    assert min(first["arrived"]) >= first["begin"] > 0  # warm-up is left out by arrival
    assert "a, standard" in told["fails_first"]


async def test_a_step_that_is_lost_ends_early_and_counts_as_one_that_fails(anyio_backend):
    """30 a second come, 10 are served: after 16.5 s of warm-up 21 of 3,000 are 4 s late within a moment."""
    async with engine(ONE_AT_A_TIME) as opened:
        target = Within(opened)
        picked = chosen(poisson(5, 200), None, Wanted())
        maker = await maker_for(picked, target, 1)
        climbing = Climbing(
            target,
            picked.trace,
            maker.specs,
            maker.lines,
            {},
            lambda model, service_class: 1.0,
            1,
            anyio.Event(),
            lambda log: None,
        )
        began, done = anyio.current_time(), Climb()
        lost = await climbing.step(30.0, 110.0, 0, done)
        took, began = anyio.current_time() - began, anyio.current_time()
        held = await climbing.step(5.0, 110.0, 1, done)

    assert 16.5 < took < 40 and lost.end < 40
    assert not lost.passes(1.0) and lost.p99 > WORST
    assert 9 < lost.served < 11 and not done.void
    assert anyio.current_time() - began > 110 and held.passes(1.0) and held.end == pytest.approx(126.5)


async def test_a_ramp_that_is_stopped_keeps_its_steps(anyio_backend):
    stop = anyio.Event()

    def after(so_far: Climb) -> None:
        if len(so_far.sweeps[0]) == 3:
            stop.set()

    async with engine(ONE_AT_A_TIME) as opened:
        done = await climb(
            chosen(poisson(5, 50), None, Wanted()),
            Within(opened),
            lambda model, service_class: 1.0,
            seed=1,
            dwell=Dwell(far=10, near=20),
            stop=stop,
            after=after,
        )

    assert done.aborted and len(done.sweeps[0]) == 3
