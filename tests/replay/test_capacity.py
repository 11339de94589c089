from __future__ import annotations

import functools
import math
from dataclasses import replace

import numpy as np
import pytest

from engine.requests import ServiceClass
from engine.scheduling.rules import SchedulingRules
from replay.capacity import Capacity, measure
from replay.groups import first_to_fail, groups
from replay.most import busiest, fails, most_by
from replay.ramp import Dwell
from replay.rules import checks
from replay.scaling import Method
from replay.sweeps import run_step, stretch, sweep
from replay.trace import Trace
from replay.twin.server import Server
from replay.twin.traffic import Traffic
from replay.twin.twin import simulate
from tests.replay.small import GIB, server, traffic, unit

QUICK = Dwell(far=20, near=40)

HALF = SchedulingRules(
    targets={ServiceClass.INTERACTIVE: 0.2, ServiceClass.STANDARD: 1.0, ServiceClass.BACKGROUND: 60.0}
)


def half() -> tuple[Server, Traffic]:
    on = server(scheduling=HALF, assumed=("a: guessed",))
    return on, traffic(on, rate=1, seconds=100)


@functools.cache
def measured() -> Capacity:
    return measure(*half(), 1, QUICK)


def test_a_stretch_of_traffic_has_its_rate_and_its_bursts():
    on = server()
    sent = traffic(on, rate=5, seconds=200)
    made = stretch(sent, rate=20, seconds=100, seed=3)

    assert len(made) == 2000 and made.trace.rate == pytest.approx(20, rel=0.01)
    assert (np.diff(made.trace.arrived) >= 0).all()
    assert set(made.units()) == {"a", "b"}


def test_the_knee_is_where_the_rate_of_the_twin_really_fails():
    on, sent = half()
    found = measured()

    knee = found.knee.knee_slo
    long = [run_step(on, sent, rate, 600, 9).passes(1.0) for rate in (0.7 * knee, 1.4 * knee)]
    assert long == [True, False]
    assert found.knee.saturation is None or found.knee.saturation > 0.9 * knee
    assert found.fails_first is not None and found.fails_first.stage in ("queue", "run")
    assert {m.unit for m in found.models} == {"a", "b"}
    assert sum(m.share for m in found.models) == pytest.approx(1, abs=0.02)
    assert found.redundancy == min(knee / found.peaks[60.0], found.most[0].k)
    assert found.most[0].k <= found.most[-1].k and len(found.most) == 3
    assert sum(use.rate for use in found.uses) == pytest.approx(found.rate, rel=0.05)
    assert all(use.peak_bytes >= GIB and 0 < use.busy < 1 and use.loads == 0 for use in found.uses)


def test_saturation_is_no_less_than_what_was_served_once():
    """Of a burst at the end of a step much is served after it."""
    on = server(unit("a"), scheduling=HALF)
    times = np.sort(np.concatenate([np.arange(8) * 60 + d for d in np.linspace(0, 4, 100)]))
    sent = Traffic.of(Trace.of("bursts", times, models=["a"] * 800, input_size=[10] * 800), on)

    found = measure(on, sent, 1, QUICK)

    assert found.knee.saturation >= 100 / 40
    assert found.knee.saturation >= max(point.served for point in found.curve)


def test_what_answers_nothing_holds_at_no_scale():
    on = server(unit("a", weights=4 * GIB), scheduling=HALF)
    found = most_by(on, traffic(on, rate=1, seconds=100), Method.DUP, 1)
    assert found.k == 0 and found.beyond is not None and found.beyond.refused == 1


def test_bursts_that_grow_with_the_load_leave_least_room():
    on = server(scheduling=HALF)
    sent = traffic(on, rate=1, seconds=100)

    by = {method: most_by(on, sent, method, 0).k for method in Method}

    assert min(by.values()) > 1
    assert by[Method.DUP] <= 1.1 * by[Method.SHIFT]


def test_a_run_that_must_fail_ends_early_and_says_what_the_whole_run_says():
    on = server(scheduling=HALF)
    sent = traffic(on, rate=60, seconds=120)

    early = fails(on, sent, 0)
    whole = first_to_fail(groups(simulate(on, sent), on))

    assert early is not None and whole is not None
    assert not early.holds and early.requests < whole.requests


def test_what_never_fails_is_told_as_the_most_that_was_tried():
    on = server(unit("a", per_batch=1e-5))
    calm = traffic(on, rate=0.2, seconds=60)
    assert most_by(on, calm, Method.WARP, 0).beyond is None


def test_what_fails_as_it_is_has_a_k_below_one():
    on = server(scheduling=HALF)
    sent = traffic(on, rate=20, seconds=60)
    least = most_by(on, sent, Method.DUP, 0)
    assert least.k < 1 and least.beyond is not None


def test_a_model_that_is_loaded_each_time_fails_at_its_load():
    """Both fit only one at a time; each request finds the other one there."""
    on = server(unit("a"), unit("b"), memory=int(1.9 * GIB), scheduling=HALF)
    sent = traffic(on, rate=1, seconds=120)

    worst = first_to_fail(groups(simulate(on, sent), on))

    assert worst is not None and worst.stage == "load" and worst.cold > 0.3


def test_the_busiest_period_is_the_one_with_most_arrivals():
    on = server()
    calm, busy = traffic(on, rate=1, seconds=600), traffic(on, rate=9, seconds=120)
    times = np.concatenate([calm.trace.arrived, 300 + busy.trace.arrived])
    order = np.argsort(times)
    rows = np.concatenate([calm.trace.input_size, busy.trace.input_size + len(calm.shapes)])[order]
    twice = replace(
        calm, trace=calm.trace.take(np.zeros(len(times), dtype=int)), shapes=(*calm.shapes, *busy.shapes)
    )
    both = replace(twice, trace=replace(twice.trace, arrived=times[order], input_size=rows))

    assert busiest(both, 100).trace.rate > 8


def test_rules_are_held_to_and_say_what_they_found():
    on, sent = half()
    found = measured()

    told = {check.name: check for check in checks(found, on, days=3)}

    assert told["redundancy of 2"].ok is found.enough
    assert not told["at least 7 days recorded"].ok
    assert told["a fifth of the memory free at the peak"].ok
    assert not told["everything was measured"].ok and "guessed" in told["everything was measured"].text
    full = replace(on, headroom=0.0, cards=(replace(on.cards[0], memory_bytes=int(2.01 * GIB)),))
    crowded = replace(found, results=simulate(full, sent))
    held = {c.name: c for c in checks(crowded, full, days=30)}
    assert not held["a fifth of the memory free at the peak"].ok
    assert held["at least 7 days recorded"].ok


def test_a_group_of_few_requests_is_not_judged():
    on = server(unit("a", per_batch=5.0))
    sent = traffic(on, rate=0.1, seconds=100)
    (group,) = groups(simulate(on, sent), on)
    assert group.requests < 20 and group.holds and group.p99 > group.target


def test_requests_that_were_refused_are_never_answered():
    on = server(unit("a", weights=9 * GIB))
    sent = traffic(on, rate=2, seconds=30)
    (group,) = groups(simulate(on, sent), on)
    assert math.isinf(group.p99) and group.refused == 1 and group.stage == "refused"


def test_a_sweep_begins_where_targets_hold():
    on = server(scheduling=HALF)
    sent = traffic(on, rate=1, seconds=300)
    steps = sweep(on, sent, first=100.0, seed=0, dwell=QUICK)
    assert steps[0].passes(1.0) and steps[0].offered < 50
