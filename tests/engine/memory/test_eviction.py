"""Who leaves when memory is tight."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.memory.eviction import MEMORY_SECONDS, choose, faded, used, victims
from engine.memory.footprint import Footprint
from engine.memory.residency import Residency, Resident
from engine.memory.rules import EvictionPolicy, MemoryRules


def resident(name, weights=100, *, demand=1.0, load=1.0, last_used=0.0, state=Residency.READY, **fields):
    return Resident(
        name,
        "d",
        Footprint(weights),
        state=state,
        demand=demand,
        load_seconds=load,
        last_used=last_used,
        **fields,
    )


def names(leaving):
    return None if leaving is None else [r.unit for r in leaving]


def chosen(shortfall, residents, wanted=(), policy=EvictionPolicy.VALUE, unwanted_only=False, now=10.0):
    return names(
        choose(shortfall, residents, unwanted_only=unwanted_only, wanted=wanted, policy=policy, now=now)
    )


@pytest.mark.parametrize(
    ("policy", "first"),
    [(EvictionPolicy.VALUE, "cheap"), (EvictionPolicy.LRU, "old"), (EvictionPolicy.LFU, "rare")],
)
def test_the_policy_says_who_is_worth_least(policy, first):
    here = [
        resident("cheap", demand=5.0, load=0.01, last_used=9.0),
        resident("old", demand=9.0, load=5.0, last_used=1.0),
        resident("rare", demand=1.0, load=9.0, last_used=8.0),
    ]

    assert chosen(50, here, policy=policy) == [first]


def test_the_same_worth_in_more_bytes_is_worth_less():
    assert chosen(50, [resident("small", 100), resident("large", 1000)]) == ["large"]


@pytest.mark.parametrize(
    "kept",
    [
        {"pinned": True},
        {"state": Residency.LOADING},
        {"state": Residency.LEAVING},
        {"state": Residency.FAILED},
        {"yielding": True},
    ],
    ids=str,
)
def test_who_is_pinned_or_on_the_move_is_never_chosen(kept):
    here = [resident("kept", demand=0.0, **kept), resident("other", demand=1e6)]

    assert chosen(50, here) == ["other"]
    assert chosen(150, here) is None


@pytest.mark.parametrize("busy", [{"leases": 1}, {"kv_tokens": 5}])
def test_who_has_work_goes_last_or_not_at_all(busy):
    here = [
        resident("busy", demand=0.0, **busy),
        resident("wanted", demand=0.0),
        resident("idle", demand=99.0),
    ]

    assert chosen(50, here, wanted={"wanted"}) == ["idle"]
    assert chosen(150, here, wanted={"wanted"}, unwanted_only=True) is None
    assert set(chosen(150, here, wanted={"wanted"})) < {"busy", "wanted", "idle"}
    assert len(chosen(250, here, wanted={"wanted"})) == 3


def test_nobody_leaves_when_nothing_is_short_or_all_do_not_suffice():
    here = [resident("a"), resident("b")]

    assert (chosen(0, here), chosen(-5, here), chosen(201, here)) == ([], [], None)


def test_a_large_one_chosen_late_keeps_the_small_ones_that_it_makes_needless():
    here = [
        resident("s1", 10, demand=0.1),
        resident("s2", 30, demand=0.4),
        resident("large", 100, demand=10.0),
    ]

    assert chosen(100, here) == ["large"]
    assert chosen(105, here) == ["s1", "large"]


sizes = st.lists(st.tuples(st.integers(1, 50), st.floats(0, 10), st.booleans(), st.booleans()), max_size=10)


@settings(max_examples=200, deadline=None)
@given(sizes, st.integers(-10, 300))
def test_whoever_is_chosen_frees_enough_and_nobody_is_chosen_needlessly(drawn, shortfall):
    here = [
        resident(str(n), weights, demand=demand, pinned=pinned, leases=int(busy))
        for n, (weights, demand, pinned, busy) in enumerate(drawn)
    ]

    leaving = choose(shortfall, here, unwanted_only=False, wanted=(), policy=EvictionPolicy.VALUE, now=0.0)

    available = sum(r.footprint.weights_bytes for r in here if not r.pinned)
    assert (leaving is None) == (shortfall > max(0, available))
    if leaving:
        freed = sum(r.footprint.weights_bytes for r in leaving)
        assert freed >= shortfall and not any(r.pinned for r in leaving)
        assert all(freed - r.footprint.weights_bytes < shortfall for r in leaving)


def test_demand_is_recent_demand():
    model = resident("a", demand=0.0)
    for _ in range(100):
        used(model, 0.0)
    used(model, MEMORY_SECONDS, uses=0)  # its last lease ends: no use of its own

    assert faded(model, MEMORY_SECONDS) == pytest.approx(100 / math.e)
    assert faded(model, 11 * MEMORY_SECONDS) < 0.01


RULES = MemoryRules()


def leaving(here, *, since=0.0, now=0.0, wanted=(), rules=RULES, shortfall=50):
    found = victims(shortfall, since, here, wanted=wanted, rules=rules, now=now)
    return found if isinstance(found, float) else names(found)


def test_an_idle_unit_lingers_a_share_of_its_load_time_after_its_last_use():
    here = [resident("a", load=4.0, last_used=10.0)]

    assert leaving(here, since=10.0, now=10.0) == pytest.approx(11.0)
    assert leaving(here, since=10.0, now=11.0) == ["a"]


def test_no_linger_is_longer_than_the_least_residency():
    here = [resident("a", load=400.0, last_used=10.0)]

    assert leaving(here, since=10.0, now=10.0) == pytest.approx(12.0)


def test_those_with_work_are_left_in_place_until_the_claim_has_waited_long_enough():
    here = [resident("a", load=0.25, leases=1), resident("b", load=0.25, demand=0.5)]

    assert leaving(here, now=0.5, wanted={"a", "b"}) == pytest.approx(2.0)  # eight times the slowest load
    assert leaving(here, now=2.0, wanted={"a", "b"}) == ["b"]


def test_no_claim_waits_longer_than_max_cold_wait_for_others_to_have_had_their_turn():
    here = [resident("a", load=100.0, leases=1)]

    assert leaving(here, since=3.0, now=3.0) == pytest.approx(8.0)
    assert leaving(here, since=3.0, now=8.0) == ["a"]


def test_when_nobody_may_leave_there_is_no_time_to_look_again():
    assert leaving([resident("a", pinned=True)], now=100.0) == math.inf
