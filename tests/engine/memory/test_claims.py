"""Which claim goes first, and what is kept for it."""

from __future__ import annotations

import math

import pytest

from engine.memory.rules import CLAIM_SECONDS, LOOK_SECONDS
from engine.requests import ServiceClass
from tests.engine.memory.desk import Desk, loads, need, release, unloads

INTERACTIVE, STANDARD, BACKGROUND = ServiceClass


def full(*claims):
    """A desk that `busy` fills with a batch under way, and claims by name, class and due time."""
    desk = Desk()
    desk.resident("busy", 900)
    desk.wanted("busy")
    lease = next(e.lease for e in desk.need(need("busy")) if hasattr(e, "lease"))
    for unit, urgency, due in claims:
        desk.known(unit, 500)
        desk.wanted(unit, urgency=urgency, due=due)
    return desk, lease


def first_in(desk, lease, now):
    """Whose load begins when the busy one has left."""
    desk.unwanted("busy")
    desk.now = now
    left = unloads(desk.release(release(lease)))
    assert left == [("busy", "d")]
    return loads(desk.unloaded(*left[0]))


@pytest.mark.parametrize(
    ("claims", "first"),
    [
        ([("a", STANDARD, 9.0), ("b", STANDARD, 8.0)], "b"),
        ([("a", BACKGROUND, 60.0), ("b", STANDARD, 10.0)], "b"),
        ([("a", BACKGROUND, 60.0), ("b", STANDARD, 61.0)], "a"),  # it has waited its target
        ([("a", STANDARD, math.inf), ("b", STANDARD, math.inf)], "a"),
        ([("a", STANDARD, math.inf), ("b", STANDARD, CLAIM_SECONDS - 1)], "b"),
        ([("a", STANDARD, math.inf), ("b", STANDARD, CLAIM_SECONDS + 1)], "a"),
    ],
)
def test_claims_go_in_order_of_when_their_work_is_due(claims, first):
    desk, lease = full(*claims)

    assert first_in(desk, lease, 30.0)[0] == (first, "d")


def test_what_has_become_more_urgent_goes_sooner():
    desk, lease = full(("a", STANDARD, 8.0), ("b", BACKGROUND, 60.0))
    desk.wanted("b", urgency=INTERACTIVE, due=0.2)

    assert first_in(desk, lease, 30.0)[0] == ("b", "d")


def test_an_operator_s_load_goes_by_its_age():
    desk, lease = full(("a", STANDARD, 9.0))
    desk.known("b", 500)
    desk.load("b", 1)

    assert first_in(desk, lease, 30.0)[0] == ("b", "d")


@pytest.mark.parametrize(("now", "goes"), [(1.0, [("small", "d")]), (5.5, [])], ids=["patient", "waited"])
def test_what_a_large_one_waits_for_is_not_taken_by_small_ones_once_it_has_waited(now, goes):
    """`idle` has room enough for the small one. The large one needs `busy` to go too, whose turn lasts."""
    desk = Desk(min_residency=100.0)
    desk.resident("busy", 500)
    desk.resident("idle", 300)
    desk.wanted("busy")
    desk.need(need("busy"))
    desk.held.residents["busy", "d"].caught_up = False
    desk.known("large", 800)
    desk.known("small", 200)
    desk.wanted("large", due=1.0)
    desk.now = now

    effects = desk.wanted("small", due=2.0)
    assert loads(effects) + unloads(effects) == (goes and [("idle", "d")])


def test_a_unit_has_caught_up_when_nothing_of_it_waits_or_runs():
    desk, lease = full()
    busy = desk.held.residents["busy", "d"]
    assert busy.caught_up  # it came, and nothing waited
    busy.caught_up = False

    desk.unwanted("busy")
    assert not busy.caught_up
    desk.release(release(lease))
    assert busy.caught_up


def test_a_unit_that_waits_for_a_lease_and_is_told_again_is_not_ready_twice():
    desk = Desk()
    desk.resident("a")
    desk.wanted("a")

    assert desk.wanted("a", urgency=INTERACTIVE, due=1.0) == []


def test_what_a_unit_was_used_for_is_the_class_of_its_batches():
    desk = Desk()
    desk.resident("a")
    desk.wanted("a", urgency=BACKGROUND)
    desk.now = 3.0
    desk.need(need("a"))

    assert desk.held.residents["a", "d"].used_for == {STANDARD: 3.0}


def test_claims_are_looked_at_once_a_moment_and_none_is_forgotten():
    desk = Desk()
    desk.resident("a", 600)
    desk.wanted("a")
    lease = next(e.lease for e in desk.need(need("a")) if hasattr(e, "lease"))
    desk.known("b", 600)
    desk.now = 0.5
    desk.wanted("b")  # looked at: a has its turn
    turn_ends = desk.custody.wake_at

    desk.now = 0.501
    desk.unwanted("a")
    desk.release(release(lease))
    assert desk.custody.wake_at == pytest.approx(0.5 + LOOK_SECONDS) != turn_ends
    desk.now = desk.custody.wake_at
    desk.wake()
    desk.now = desk.custody.wake_at  # a is idle, and lingers no more

    assert desk.now < turn_ends
    assert unloads(desk.wake()) == [("a", "d")]
