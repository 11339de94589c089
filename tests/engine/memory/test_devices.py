"""Several devices: where a unit goes, and what becomes of everything when one is lost."""

from __future__ import annotations

import math

import pytest

from engine.conversation import Left, Ready, Unavailable
from engine.errors import InvalidInput, NoRoom, ResourceExhausted
from engine.events import ResidencyChanged
from engine.memory import placement
from engine.memory.effects import Abandon, DropHost
from engine.memory.footprint import Footprint
from engine.memory.residency import Residency
from tests.engine.memory.desk import BROKEN, Desk, answers, error, granted, loads, need, release, unloads

CARDS = {"z": "cpu", "d": "simulated", "e": "simulated"}
BOTH = {"device_kinds": ("simulated", "cpu")}


def test_the_preferred_kind_comes_first_even_where_somebody_has_to_leave():
    desk = Desk(kinds={"z": "cpu", "d": "simulated"}, own={"b": BOTH})
    desk.resident("a", 600)
    desk.known("b", 600)
    desk.now = 10.0

    assert unloads(desk.wanted("b")) == [("a", "d")]


def test_another_kind_takes_what_does_not_fit_beside_the_pins_of_the_first():
    desk = Desk(kinds={"z": "cpu", "d": "simulated"}, own={"b": BOTH})
    desk.resident("a", 600)
    desk.pin("a", 1)
    desk.known("b", 600)

    assert loads(desk.wanted("b")) == [("b", "z")]


def test_of_two_devices_of_a_kind_the_one_with_most_free():
    desk = Desk(devices=("d", "e"))
    desk.resident("a", 300)
    desk.known("b", 300)

    assert loads(desk.wanted("b")) == [("b", "e")]


def test_of_two_full_devices_the_one_where_least_demand_has_to_leave():
    desk = Desk(devices=("d", "e"))
    desk.resident("a", 700)
    desk.resident("b", 700, device="e")
    desk.uses("a", "d", times=9)
    desk.uses("b", "e", times=3)
    desk.known("c", 700)
    desk.now = 10.0

    assert unloads(desk.wanted("c")) == [("b", "e")]


def test_who_has_work_counts_for_more_than_any_demand():
    desk = Desk(devices=("d", "e"))
    desk.resident("a", 700)
    desk.resident("b", 700, device="e")
    desk.uses("a", "d", times=9)
    desk.wanted("b")
    desk.known("c", 700)
    desk.now = 10.0

    assert unloads(desk.wanted("c")) == [("a", "d")]


def test_a_claim_keeps_to_the_device_where_room_is_made_for_it():
    desk = Desk(devices=("d", "e"))
    desk.resident("a", 700)
    desk.resident("b", 700, device="e")
    desk.uses("b", "e")
    desk.known("c", 700)
    desk.now = 10.0
    assert unloads(desk.wanted("c")) == [("a", "d")]
    desk.unload("b", 1)
    assert loads(desk.unloaded("b", "e")) == []

    assert loads(desk.unloaded("a", "d")) == [("c", "d")]


def test_a_lost_device_leaves_nothing_behind():
    desk = Desk(devices=("d", "e"))
    desk.resident("a", 100)
    desk.resident("b", 100, device="e")
    lease = granted(desk.need(need("a")))
    desk.known("c", 100)
    desk.unload("b", 1)

    told = desk.lost("d", "it fell off the bus")

    assert Left("a", "d") in told and Abandon("a", "d") in told
    (changed,) = [e for e in told if isinstance(e, ResidencyChanged)]
    assert (changed.event, changed.reason) == ("lost", "it fell off the bus")
    assert desk.held.ledgers["d"].used_bytes == 0 and desk.state("a") is Residency.ABSENT
    assert desk.release(release(lease)) == []
    assert desk.lost("d", "again") == []
    assert desk.observed("d", 500) == [] and desk.held.ledgers["d"].used_bytes == 0


@pytest.mark.parametrize("ends", ["loaded", "load_failed"])
def test_a_load_that_ends_on_a_lost_device_is_no_load(ends):
    desk = Desk(devices=("d", "e"))
    desk.known("a")
    desk.wanted("a")
    elsewhere = desk.lost("d", "gone")

    late = desk.loaded("a", "d", 1.0) if ends == "loaded" else desk.load_failed("a", "d", BROKEN)

    assert loads(elsewhere) == [("a", "e")]
    assert late == ([Abandon("a", "d")] if ends == "loaded" else [])
    assert desk.state("a", "d") is Residency.ABSENT and desk.state("a", "e") is Residency.LOADING


def test_who_waits_for_a_unload_on_a_lost_device_has_what_it_wanted():
    desk = Desk(devices=("d", "e"))
    desk.resident("a")
    desk.unload("a", 1)

    assert answers(desk.lost("d", "gone")) == {1: None}
    assert desk.unloaded("a", "d") == []


def test_what_is_wanted_is_sought_elsewhere_and_what_can_be_nowhere_fails():
    desk = Desk(kinds={"d": "simulated", "z": "cpu"}, own={"b": BOTH})
    desk.resident("a")
    desk.resident("b")
    desk.wanted("a")
    desk.wanted("b")

    told = desk.lost("d", "gone")

    assert loads(told) == [("b", "z")]
    (failed,) = [e for e in told if isinstance(e, Unavailable)]
    assert failed.unit == "a" and isinstance(failed.failure.error(), ResourceExhausted)
    assert "d is lost (gone)" in failed.failure.message


def test_what_is_ready_elsewhere_goes_on_there():
    desk = Desk(devices=("d", "e"))
    desk.resident("a")
    desk.second("a", "e")
    desk.wanted("a")

    told = desk.lost("d", "gone")

    assert Ready("a", "e") in told and loads(told) == []


def test_a_pin_on_a_lost_device_has_another_place_if_there_is_one():
    desk = Desk(devices=("d", "e"))
    desk.resident("a", 600)
    desk.pin("a", 1)

    assert loads(desk.lost("d", "gone")) == [("a", "e")]
    desk.loaded("a", "e", 1.0)
    assert desk.held.residents["a", "e"].pinned


def test_a_pin_that_has_no_place_any_more_is_kept_and_shown_and_has_one_when_there_is_room():
    desk = Desk(devices=("d", "e"))
    desk.resident("a", 600)
    desk.pin("a", 1)
    desk.resident("b", 600, device="e")
    desk.pin("b", 2)

    assert loads(desk.lost("d", "gone")) == []
    assert "These pins have no place: a" in placement.alarm(desk.held, "d")
    desk.now = 10.0
    assert unloads(desk.unpin("b", 3)) == [("b", "e")]
    assert loads(desk.unloaded("b", "e")) == [("a", "e")]


def test_a_pin_still_asked_for_is_refused_when_its_device_is_lost_and_no_other_takes_it():
    desk = Desk(devices=("d",))
    desk.known("a")
    desk.pin("a", 1)

    assert answers(desk.lost("d", "gone")) == {1: ResourceExhausted}
    assert not desk.held.pins
    assert answers(desk.pin("a", 2, device="d")) == {2: InvalidInput}


def test_the_place_before_is_no_place_when_it_is_lost():
    desk = Desk(devices=("d", "e"))
    desk.resident("a")
    desk.pin("a", 1)
    desk.pin("a", 2, device="e")
    desk.lost("d", "gone")

    assert answers(desk.loaded("a", "e", 1.0)) == {2: None}
    assert desk.held.pins["a"].former is None


def test_weights_on_their_way_to_host_memory_are_lost_with_their_device():
    desk = Desk(host_memory=500, devices=("d", "e"))
    desk.resident("a", 100, device="d")
    desk.resident("b", 950, device="e")
    desk.now = 10.0
    desk.known("c", 950)
    assert unloads(desk.wanted("c")) == [("a", "d")]

    desk.lost("d", "gone")

    assert "a" not in desk.held.host
    assert desk.unloaded("a", "d", kept_bytes=100) == [DropHost("a")]


def test_others_who_crowd_a_card_stop_loads_and_evict_nobody():
    desk = Desk()
    desk.resident("a", 500)
    desk.resident("b", 200)
    desk.pin("a", 1)
    desk.known("c", 100)

    assert desk.observed("d", 495) == []
    (told,) = desk.wanted("c")

    assert desk.state("b") is Residency.READY and desk.held.residents["a", "d"].pinned
    refusal = told.failure.error()
    assert isinstance(refusal, ResourceExhausted) and refusal.retry_after == pytest.approx(5.0)
    assert "nothing else is loaded there" in placement.alarm(desk.held, "d")
    desk.observed("d", 0)
    assert placement.alarm(desk.held, "d") == ""
    assert loads(desk.wanted("c")) == [("c", "d")]


def test_what_is_there_runs_on_while_others_crowd_the_card():
    desk = Desk()
    desk.resident("a", 500)
    desk.resident("b", 200)
    desk.pin("a", 1)
    desk.observed("d", 295)
    desk.observed("d", 600)

    assert desk.wanted("b") == [Ready("b", "d")]


def test_what_others_hold_on_one_card_sends_loads_to_the_other():
    desk = Desk(devices=("d", "e"))
    desk.resident("a", 500)
    desk.pin("a", 1)
    desk.observed("d", 495)
    desk.known("c", 100)

    assert loads(desk.wanted("c")) == [("c", "e")]


def test_what_the_ledger_does_not_know_of_is_shown_as_unattributed():
    desk = Desk()
    desk.resident("a", 500)
    assert desk.held.unattributed("d") == 0  # nobody has told

    desk.observed("d", 50, allocated_bytes=620)

    assert desk.held.unattributed("d") == 120
    desk.observed("d", 50, allocated_bytes=400)
    assert desk.held.unattributed("d") == -100


def test_who_would_leave_and_why():
    desk = Desk()
    for unit, times in (("a", 1), ("b", 9), ("c", 3)):
        desk.resident(unit, 250)
        desk.uses(unit, times=times)
    desk.wanted("a")

    order = desk.custody.leaving_order("d", 20.0)

    assert [leaving.unit for leaving in order] == ["a", "c", "b"]
    assert "work waits for it" in order[0].why and "idle for 20 s" in order[1].why
    assert desk.custody.would_leave("d", 250, 20.0) == []
    assert [leaving.unit for leaving in desk.custody.would_leave("d", 400, 20.0)] == ["a"]
    assert desk.custody.would_leave("d", 1001, 20.0) is None


def test_no_room_says_what_others_hold():
    desk = Desk()
    desk.known("a", 2000)

    (told,) = desk.wanted("a")

    assert isinstance(told.failure.error(), NoRoom)
    assert error(desk.pin("a", 1), 1).message == told.failure.message
    assert isinstance(desk.inspected("b", Footprint(100)), list)


def test_another_kind_is_better_than_a_crowded_card():
    desk = Desk(kinds={"d": "simulated", "z": "cpu"}, own={"c": BOTH})
    desk.resident("a", 500)
    desk.pin("a", 1)
    desk.observed("d", 495)
    desk.known("c", 100)

    assert loads(desk.wanted("c")) == [("c", "z")]


def test_nobody_is_woken_for_bytes_of_a_lost_device():
    desk = Desk()
    desk.resident("a", 500)
    desk.resident("b", 300, seconds=5.0)
    desk.wanted("a")
    desk.wanted("b")
    desk.need(need("a", 400))
    assert desk.custody.wake_at == pytest.approx(2.0)  # when `b` has had its turn

    desk.lost("d", "gone")

    assert desk.custody.wake_at == math.inf
