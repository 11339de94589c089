"""What batches take: declared at first, then as it was seen."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.conversation import Denied, Granted, Left
from engine.memory.footprint import Footprint
from engine.memory.ledger import Line
from engine.memory.workspace import ENOUGH, MARGIN, WorkspaceCurve
from tests.engine.memory.desk import Desk, granted, need, release, unloads

DECLARED = Footprint(0, workspace_base=100, workspace_per_cost=10.0)


def learned(*readings, declared=DECLARED):
    curve = WorkspaceCurve()
    for cost, peak in readings:
        curve.observe(cost, peak)
    return curve


def test_the_declared_footprint_holds_until_there_are_readings_enough():
    curve = learned(*[(64, 5000)] * (ENOUGH - 1))
    assert curve.workspace(64, DECLARED) == 740

    curve.observe(64, 5000)

    assert curve.workspace(64, DECLARED) == int(5000 * MARGIN)


def test_between_readings_it_is_linear_and_beyond_them_as_steep_as_the_more_careful_guess():
    curve = learned(*[(100, 1000)] * 3, *[(400, 2000)] * 3)

    assert curve.workspace(250, DECLARED) == pytest.approx(1650, abs=1)
    assert curve.workspace(500, DECLARED) == pytest.approx(2200 + 100 * 10, abs=1)
    assert curve.workspace(500, Footprint(0)) == pytest.approx(2200 + 100 * 5.5, abs=1)
    assert curve.workspace(10, DECLARED) == 200  # what was declared, if that is more than in proportion
    assert curve.workspace(90, DECLARED) == 1000


def test_it_never_falls_with_cost():
    curve = learned(*[(100, 5000)] * 3, *[(400, 2000)] * 3)

    assert curve.workspace(400, DECLARED) == curve.workspace(100, DECLARED)


def test_the_highest_reading_counts_and_fades_slowly():
    curve = learned(*[(100, 1000)] * 5, (100, 3000))
    assert curve.workspace(100, DECLARED) == 3300
    for _ in range(10):
        curve.observe(100, 1000)
    assert curve.workspace(100, DECLARED) > 2800

    for _ in range(300):
        curve.observe(100, 1000)

    assert curve.workspace(100, DECLARED) == pytest.approx(1100, rel=0.01)


def test_a_batch_that_ran_out_of_memory_makes_what_is_declared_grow_and_batches_smaller():
    curve = WorkspaceCurve()

    curve.ran_out(64, DECLARED)

    assert curve.workspace(64, DECLARED) == 100 + 640 * 1.5 and curve.cap == 32
    for _ in range(20):
        curve.ran_out(64, DECLARED)
    assert curve.workspace(64, DECLARED) == 100 + 640 * 8 and curve.cap == 32


def test_and_what_was_learned_too():
    curve = learned(*[(64, 1000)] * 6)

    curve.ran_out(64, DECLARED)

    assert curve.workspace(64, DECLARED) == pytest.approx(1650, abs=2)


def test_what_was_learned_survives_as_plain_data():
    curve = learned(*[(100, 1000)] * 3, *[(400, 2000)] * 3)
    curve.ran_out(500, DECLARED)
    again = WorkspaceCurve()

    again.learn(json.loads(json.dumps(curve.points())))

    assert again.points() == curve.points() and again.cap == 250
    assert [again.workspace(c, DECLARED) for c in (1, 99, 300, 900)] == [
        curve.workspace(c, DECLARED) for c in (1, 99, 300, 900)
    ]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 10**10)), max_size=30),
    st.integers(0, 10**6),
    st.one_of(st.just(0.0), st.floats(1e-3, 1e4)),
    st.lists(st.integers(0, 2 * 10**6), min_size=2, max_size=2),
    st.integers(0, 10**11),
)
def test_it_rises_with_cost_covers_what_was_seen_and_knows_what_fits(readings, base, slope, costs, free):
    declared = Footprint(0, base, slope)
    curve = learned(*readings)

    low, high = (curve.workspace(cost, declared) for cost in sorted(costs))
    within = curve.cost_within(free, declared)

    assert low <= high + 1
    if curve.known:
        cost, peak = readings[-1]
        assert curve.workspace(cost, declared) >= 0 and curve.workspace(cost * 2, declared) >= peak * 0.9
    if 0 < within < 1 << 40:
        assert curve.workspace(within, declared) <= free * (1 + 1e-9) + 1
        assert curve.workspace(within + 2, declared) >= free * (1 - 1e-9) - 1


def test_leases_are_sized_by_what_was_learned():
    desk = Desk()
    desk.resident("a")
    for _ in range(ENOUGH):
        lease = granted(desk.need(need("a", 100)))
        desk.release(release(lease, cost=100, peak_bytes=50))

    granted(desk.need(need("a", 100)))

    assert desk.held.ledgers["d"].lines()[Line.WORKSPACE] == 55


def test_what_generates_is_not_learned_from_since_its_peaks_have_sequences_in_them():
    desk = Desk(generative=("g",))
    desk.resident("g")
    for _ in range(ENOUGH):
        lease = granted(desk.need(need("g", 100)))
        desk.release(release(lease, cost=100, peak_bytes=50))

    granted(desk.need(need("g", 100)))

    assert desk.held.ledgers["d"].lines()[Line.WORKSPACE] == 100


def test_after_running_out_of_memory_batches_are_smaller_and_a_single_large_job_may_still_try():
    desk = Desk()
    desk.resident("a")
    lease = granted(desk.need(need("a", 10, 200)))
    desk.release(release(lease, cost=200, out_of_memory=True))

    assert granted(desk.need(need("a", 10, 200))).max_cost == 100
    assert granted(desk.need(need("a", 150, 200, slot="d/1"))).max_cost == 150


def test_when_memory_runs_out_one_idle_unit_that_nobody_wants_leaves():
    desk = Desk()
    for unit in "abcd":
        desk.resident(unit, 50)
    desk.uses("c", times=5)
    desk.wanted("d")
    lease = granted(desk.need(need("a", 10)))

    told = desk.release(release(lease, cost=10, out_of_memory=True))

    assert unloads(told) == [("b", "d")] and Left("b", "d") in told


def test_what_was_learned_before_the_start_is_used_from_the_first_batch():
    desk = Desk()
    curve = learned(*[(100, 300)] * ENOUGH)
    desk.custody.learn({("a", "d"): curve.points()})
    desk.resident("a", 700)

    assert desk.custody.learned() == {("a", "d"): curve.points()}
    assert isinstance(desk.need(need("a", 80))[0], Granted)
    assert isinstance(desk.need(need("a", 100))[0], Denied)
