"""What is loaded before anybody waits for it: only at nobody's cost."""

from __future__ import annotations

import math

import pytest

from engine.conversation import Ready
from engine.events import ResidencyChanged
from engine.memory.effects import Inspect
from engine.memory.footprint import Footprint
from engine.memory.residency import Residency
from tests.engine.memory.desk import BROKEN, Desk, granted, loads, need, release, unloads


def test_what_is_expected_is_inspected_and_loaded_when_there_is_room():
    desk = Desk()

    assert desk.expected("a") == [Inspect("a")]
    assert loads(desk.inspected("a", Footprint(100))) == [("a", "d")]
    (changed,) = [e for e in desk.loaded("a", "d", 1.0) if isinstance(e, ResidencyChanged)]

    assert changed.reason == "expected"
    assert desk.expected("a") == [] and desk.custody.wake_at == math.inf


def test_what_is_expected_evicts_only_who_is_worth_less():
    desk = Desk()
    desk.resident("a", 600)
    desk.uses("a", times=5)
    desk.now = 60.0
    desk.resident("warm", 300)
    desk.uses("warm", times=50)
    desk.now = 120.0
    desk.resident("other", 600)  # `a` has to leave
    desk.now = 180.0

    assert unloads(desk.expected("a")) == [("other", "d")]
    assert loads(desk.unloaded("other", "d")) == [("a", "d")]


def test_what_was_never_used_evicts_nobody():
    desk = Desk()
    desk.resident("a", 600)
    desk.uses("a")
    desk.known("b", 600)
    desk.now = 1000.0

    assert desk.expected("b") == []


@pytest.mark.parametrize("policy", ["lru", "lfu", "value"])
def test_who_has_work_is_never_evicted_for_what_is_expected(policy):
    desk = Desk(policy=policy)
    desk.resident("a", 600)
    desk.uses("a", times=50)
    desk.now = 100.0
    desk.resident("b", 600)
    desk.custody.on_wanted("b", 100.0)
    desk.now = 200.0

    assert desk.expected("a") == []


def test_nothing_is_loaded_ahead_while_somebody_waits_for_room():
    desk = Desk()
    desk.resident("a", 600)
    lease = granted(desk.need(need("a")))
    desk.known("b", 600)
    desk.known("tiny", 50)
    desk.wanted("b")

    assert desk.expected("tiny") == []
    assert lease and loads(desk.unwanted("b")) == [("tiny", "d")]


def test_nothing_is_loaded_ahead_beyond_the_loads_at_once():
    desk = Desk(loads_at_once=1)
    desk.known("a")
    desk.known("b")
    desk.wanted("a")

    assert desk.expected("b") == []
    assert loads(desk.loaded("a", "d", 1.0)) == [("b", "d")]


def test_what_was_expected_is_forgotten_after_a_while():
    desk = Desk()
    desk.resident("a", 600)
    desk.uses("a")
    desk.known("b", 600)
    desk.expected("b")
    assert desk.custody.wake_at == pytest.approx(10.0)
    desk.now = 10.0
    assert desk.wake() == [] and desk.custody.wake_at == math.inf

    desk.unload("a", 1)

    assert loads(desk.unloaded("a", "d")) == []


def test_an_expected_load_that_becomes_wanted_is_an_ordinary_one():
    desk = Desk()
    desk.known("a")
    desk.expected("a")

    assert desk.wanted("a") == []
    assert Ready("a", "d", 1.0) in desk.loaded("a", "d", 1.0)


def test_what_is_expected_and_then_wanted_waits_its_turn_as_any_other():
    desk = Desk()
    desk.resident("a", 600)
    desk.uses("a")
    desk.known("b", 600)
    desk.expected("b")
    desk.now = 8.0

    assert unloads(desk.wanted("b")) == [("a", "d")]
    (changed,) = [
        e for e in [*desk.unloaded("a", "d"), *desk.loaded("b", "d", 1.0)] if isinstance(e, ResidencyChanged)
    ]
    assert changed.reason == ""


def test_an_expected_load_that_fails_is_not_tried_again_before_its_cool_down():
    desk = Desk()
    desk.known("a")
    desk.expected("a")
    desk.load_failed("a", "d", BROKEN)

    assert desk.expected("a") == []
    desk.now = 10.0
    assert loads(desk.expected("a")) == [("a", "d")]


def test_what_an_operator_unloads_is_not_expected_any_more():
    desk = Desk(loads_at_once=1)
    desk.known("a")
    desk.known("b")
    desk.wanted("a")
    desk.expected("b")
    desk.unload("b", 1)

    assert loads(desk.loaded("a", "d", 1.0)) == []


def test_a_second_copy_is_loaded_beside_the_first():
    desk = Desk(devices=("d", "e"))
    desk.resident("a")
    desk.wanted("a")

    assert loads(desk.spread("a", "e")) == [("a", "e")]
    assert Ready("a", "e", 1.0) in desk.loaded("a", "e", 1.0)
    assert desk.spread("a", "e") == []


def test_a_second_copy_evicts_nobody_with_work_nor_one_worth_more():
    desk = Desk(devices=("d", "e"))
    desk.resident("a", 600)
    desk.uses("a", times=5)
    desk.known("b", 600)
    desk.wanted("b")
    desk.loaded("b", "e", 1.0)
    desk.unwanted("b")
    desk.uses("b", "e", times=9)
    desk.wanted("a")
    desk.now = 5.0

    assert desk.spread("a", "e") == []
    desk.wanted("b")
    desk.uses("a", times=9)  # it is worth more now, but the other has work
    assert desk.state("b", "e") is Residency.READY
    assert unloads(desk.unwanted("b")) == [("b", "e")]
    assert loads(desk.unloaded("b", "e")) == [("a", "e")]


def test_no_second_copy_for_what_has_no_work_any_more():
    desk = Desk(devices=("d", "e"), loads_at_once=1)
    desk.resident("a")
    desk.known("c", 800)
    desk.wanted("c")  # loads on e
    desk.wanted("a")
    desk.spread("a", "e")
    desk.unwanted("a")

    assert loads(desk.loaded("c", "e", 1.0)) == []


def test_the_copy_that_has_been_idle_longer_leaves_first():
    desk = Desk(devices=("d", "e"))
    desk.resident("a", 500)
    desk.second("a", "e")
    desk.uses("a", "d", times=20)
    desk.now = 1.0
    desk.uses("a", "e")
    desk.resident("b", 100, device="d")
    desk.known("c", 900)
    desk.now = 60.0

    assert ("a", "d") in desk.held.spare() and ("a", "e") not in desk.held.spare()
    (first, *_) = desk.custody.leaving_order("d", 60.0)
    assert (first.unit, first.why) == ("a", "another copy of it is ready")


def test_a_second_copy_that_fails_hurts_nobody():
    desk = Desk(devices=("d", "e"))
    desk.resident("a")
    desk.wanted("a")
    desk.spread("a", "e")

    failed = desk.load_failed("a", "e", BROKEN)

    assert [type(e) for e in failed] == [ResidencyChanged]
    desk.unwanted("a")
    assert desk.state("a", "e") is Residency.FAILED and desk.wanted("a") == [Ready("a", "d")]
    assert desk.spread("a", "e") == []


def test_what_is_loaded_ahead_leaves_batches_what_they_took_of_late():
    desk = Desk()
    desk.resident("a", 300)
    lease = granted(desk.need(need("a", 400)))
    desk.release(release(lease))
    desk.known("b", 350)

    assert desk.expected("b") == []
    desk.now = 61.0
    assert loads(desk.expected("b")) == [("b", "d")]
