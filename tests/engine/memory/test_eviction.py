"""Who leaves when memory is tight."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.memory.eviction import (
    MEMORY_SECONDS,
    Standing,
    choose,
    faded,
    for_one_expected,
    order,
    used,
    victims,
)
from engine.memory.footprint import Footprint
from engine.memory.residency import Residency, Resident
from engine.memory.rules import GUARD_SECONDS, EvictionPolicy, MemoryRules
from engine.memory.turns import Bid
from engine.requests import ServiceClass

INTERACTIVE, STANDARD, BACKGROUND = ServiceClass
RULES = MemoryRules()


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


def chosen(
    shortfall, residents, wanted=(), policy=EvictionPolicy.VALUE, unwanted_only=False, now=10.0, spare=()
):
    standing = Standing(MemoryRules(policy=policy), now, wanted, spare)
    return names(choose(shortfall, residents, standing, unwanted_only=unwanted_only))


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
def test_who_has_work_at_this_moment_is_worth_no_more_for_that(busy):
    here = [
        resident("busy", demand=2.0, **busy),
        resident("wanted", demand=1.0),
        resident("idle", demand=99.0),
    ]

    assert chosen(250, here, wanted={"wanted"}) == ["wanted", "busy", "idle"]
    assert chosen(50, here, wanted={"wanted"}, unwanted_only=True) == ["idle"]
    assert chosen(150, here, wanted={"wanted"}, unwanted_only=True) is None


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

    leaving = choose(shortfall, here, Standing(RULES, 0.0), unwanted_only=False)

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


def leaving(here, *, since=0.0, now=0.0, wanted=(), rules=RULES, shortfall=50, alone=0, **bid):
    found = victims(shortfall, Bid(since, alone or shortfall, **bid), here, Standing(rules, now, wanted))
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


def test_claims_that_wait_pay_together_for_the_place_of_one_that_has_caught_up():
    """Eight loads for one claim; two of them for each of four."""
    done = resident("done", load=0.2, leases=1, last_used=9.0, caught_up=True)
    behind = resident("behind", load=0.2, leases=1, last_used=9.0)

    assert leaving([done], since=0.0, now=0.0) == pytest.approx(1.6)
    assert leaving([done], since=0.0, now=0.0, waiting=4) == pytest.approx(0.4)
    assert leaving([done], since=0.0, now=0.4, waiting=4) == ["done"]
    assert leaving([behind], since=0.0, now=0.4, waiting=4) == pytest.approx(1.6)


def test_one_that_is_used_again_and_again_has_its_turn_and_no_more():
    here = [resident("a", load=0.2, last_used=5.0)]

    assert leaving(here, since=4.0, now=5.0) == pytest.approx(5.05)
    assert leaving(here, since=3.0, now=5.0) == ["a"]  # patient for eight loads, though used just now


def used_for(name, *classes, at=0.0, **fields):
    return resident(name, used_for=dict.fromkeys(classes, at), **fields)


def test_what_was_used_for_a_more_urgent_class_stays_while_others_may_do():
    hot = used_for("hot", STANDARD, BACKGROUND, demand=0.1)
    cold = used_for("cold", BACKGROUND, demand=99.0)

    assert leaving([hot, cold], now=10.0, urgency=BACKGROUND) == ["cold"]
    assert leaving([hot, cold], now=10.0, urgency=STANDARD) == ["hot"]
    assert leaving([hot, cold], now=GUARD_SECONDS, urgency=BACKGROUND) == ["hot"]


def test_room_that_others_claim_before_is_no_reason_to_displace_a_more_urgent_class():
    here = [used_for("hot", STANDARD), used_for("cold", BACKGROUND)]

    assert leaving(here, now=10.0, urgency=BACKGROUND, shortfall=150, alone=100) == math.inf
    assert leaving(here, now=10.0, urgency=BACKGROUND, shortfall=150, alone=101) == ["cold", "hot"]


@pytest.mark.parametrize("other", [{"state": Residency.LOADING}, {"leases": 1, "since": 9.5}], ids=str)
def test_a_less_urgent_claim_waits_for_others_however_long_it_has_waited(other):
    here = [used_for("hot", STANDARD), used_for("other", BACKGROUND, **other)]

    assert isinstance(leaving(here, now=10.0, urgency=BACKGROUND), float)
    assert leaving(here, now=10.0, urgency=STANDARD) == ["hot"]


def test_when_nothing_else_will_do_the_less_urgent_claim_waits_max_cold_wait():
    here = [used_for("hot", STANDARD), used_for("pinned", BACKGROUND, pinned=True)]

    assert leaving(here, now=4.0, urgency=BACKGROUND) == pytest.approx(5.0)
    assert leaving(here, now=5.0, urgency=BACKGROUND) == ["hot"]


def test_of_those_that_are_needed_the_more_urgent_class_s_go_last():
    here = [used_for("hot", STANDARD, demand=0.1), used_for("cold", BACKGROUND, demand=9.0)]

    assert leaving(here, now=10.0, urgency=BACKGROUND, shortfall=150) == ["cold", "hot"]


def test_a_more_urgent_claim_is_not_patient_but_leaves_others_their_turn():
    here = [used_for("a", BACKGROUND, load=0.2, leases=1, since=9.0)]

    assert leaving(here, since=10.0, now=10.0, urgency=STANDARD) == pytest.approx(10.6)
    assert leaving(here, since=10.6, now=10.6, urgency=STANDARD) == ["a"]
    assert leaving(here, since=10.6, now=10.6, urgency=BACKGROUND) == pytest.approx(12.2)


@pytest.mark.parametrize("policy", list(EvictionPolicy))
def test_a_copy_that_its_unit_would_be_ready_without_goes_first(policy):
    here = [resident("a", demand=99.0, last_used=9.0), resident("b", demand=0.5, last_used=1.0)]

    assert chosen(50, here, policy=policy) == ["b"]
    assert chosen(50, here, policy=policy, spare={("a", "d")}) == ["a"]
    assert chosen(50, here, policy=policy, spare={("a", "d")}, wanted={"a"}) == ["b"]  # it has work


def test_what_comes_back_from_host_memory_is_worth_less_than_what_must_be_read_from_disk():
    here = [resident("kept", load=9.0, restore_seconds=0.1), resident("read", load=1.0)]

    assert chosen(50, here) == ["kept"]


def test_for_one_that_is_only_expected_those_leave_that_are_worth_less_and_have_no_work():
    here = [
        resident("warm", demand=5.0, last_used=0.0),
        resident("cold", demand=1.0, last_used=0.0),
        resident("busy", demand=0.0, leases=1),
        resident("just used", demand=0.5, load=4.0, last_used=9.5),
    ]
    standing = Standing(RULES, 10.0)
    value = 3.0 / 100  # demand x seconds / bytes

    assert names(for_one_expected(50, value, here, standing)) == ["cold"]
    assert for_one_expected(150, value, here, standing) is None
    assert for_one_expected(50, 0.0, here, standing) is None


def test_the_order_of_leaving_is_the_order_of_choice():
    here = [
        resident("pinned", pinned=True),
        resident("busy", demand=0.0, leases=1),
        resident("b", demand=2.0),
        resident("a", demand=1.0),
    ]

    assert names(order(here, Standing(RULES, 0.0))) == ["busy", "a", "b"]
