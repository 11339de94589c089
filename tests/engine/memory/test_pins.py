"""Pins are guarantees: where, for how many batches at once, and at what price."""

from __future__ import annotations

import math

import pytest

from engine.conversation import Denied, Ready, TooLarge, Unavailable
from engine.errors import InvalidInput, NoRoom
from engine.memory import placement
from engine.memory.effects import Answer, Inspect
from engine.memory.footprint import Footprint
from engine.memory.ledger import Ledger, Line
from engine.memory.residency import Residency
from tests.engine.memory.desk import BROKEN, Desk, answers, error, granted, loads, need, release, unloads

BOTH = ("simulated", "cpu")


@pytest.mark.parametrize(
    ("device", "slots", "said"),
    [
        ("nowhere", 1, "no device nowhere; this server has d, z"),
        ("z", 1, "a runs on simulated, and z is of kind cpu"),
        ("d", 0, "1 to 4 slots"),
        ("d", 5, "1 to 4 slots"),
        (None, 5, "1 to 4 slots"),
    ],
)
def test_a_pin_that_makes_no_sense_is_refused_at_once(device, slots, said):
    desk = Desk(kinds={"d": "simulated", "z": "cpu"})

    (answer,) = desk.pin("a", 1, device=device, min_slots=slots)

    assert isinstance(answer.error, InvalidInput) and said in answer.error.message
    assert not desk.held.pins


def test_a_unit_that_may_run_once_at_a_time_is_not_pinned_for_more():
    desk = Desk(own={"a": {"max_slots": 1}})

    assert answers(desk.pin("a", 1, min_slots=2)) == {1: InvalidInput}


def test_a_kept_pin_of_a_dtype_that_this_machine_does_not_make_is_refused():
    desk = Desk()

    assert answers(desk.pin("nothing", 1)) == {1: InvalidInput}
    assert answers(desk.load("nothing", 2)) == {2: InvalidInput}


def test_a_pin_goes_to_the_device_that_it_names():
    desk = Desk(devices=("d", "e"))
    desk.known("a")

    assert loads(desk.pin("a", 1, device="e")) == [("a", "e")]
    assert answers(desk.loaded("a", "e", 1.0)) == {1: None}
    assert desk.held.residents["a", "e"].pinned


def test_a_pin_for_several_batches_needs_room_for_all_of_them():
    desk = Desk()  # a batch takes 10 at least
    desk.known("a", 961)

    refused = desk.pin("a", 1, min_slots=4)

    assert isinstance(error(refused, 1), NoRoom) and "4 slots of" in error(refused, 1).message
    assert loads(desk.pin("a", 2, min_slots=3)) == [("a", "d")]


def test_the_batches_of_others_leave_room_for_those_of_a_pin_with_several_slots():
    desk = Desk()
    desk.resident("a", 500)
    desk.resident("b", 300)
    desk.pin("a", 1, min_slots=4)  # 40 bytes of the 200

    others = granted(desk.need(need("b", 10, 200)))

    assert others.max_cost == 160
    ours = [granted(desk.need(need("a", 10))) for _ in range(4)]
    assert desk.held.ledgers["d"].free_bytes == 0
    assert desk.need(need("b", 10))[0] == Denied("d/0", "b", "d", "busy")
    for lease in ours:
        desk.release(release(lease))
    desk.release(release(others))
    assert desk.need(need("b", 161)) == [TooLarge("d/0", "b", "d", 160, 159)]


def test_what_loads_beside_a_pin_with_several_slots_leaves_them_their_room():
    desk = Desk()
    desk.resident("a", 500)
    desk.pin("a", 1, min_slots=4)
    desk.known("b", 451)

    (told,) = [e for e in desk.wanted("b") if isinstance(e, Unavailable)]
    desk.known("c", 450)

    assert told.failure.kind == "NoRoom"
    assert loads(desk.wanted("c")) == [("c", "d")]


def test_a_pin_with_other_values_takes_the_place_of_the_first():
    desk = Desk(devices=("d", "e"))
    desk.resident("a")
    desk.pin("a", 1)

    moving = desk.pin("a", 2, device="e")
    assert desk.held.residents["a", "d"].pinned  # until the other is there
    arrived = desk.loaded("a", "e", 1.0)

    assert loads(moving) == [("a", "e")] and answers(arrived) == {2: None}
    assert not desk.held.residents["a", "d"].pinned and desk.held.residents["a", "e"].pinned


def test_a_pin_that_is_refused_leaves_the_one_before():
    desk = Desk(devices=("d", "e"))
    desk.resident("a", 600)
    desk.pin("a", 1)
    desk.known("b", 900)
    desk.pin("b", 2, device="e")
    desk.loaded("b", "e", 1.0)

    assert answers(desk.pin("a", 3, device="e")) == {3: NoRoom}
    assert desk.held.pins["a"].device == "d" and desk.held.residents["a", "d"].pinned


def test_a_pin_whose_load_fails_leaves_the_one_before():
    desk = Desk(devices=("d", "e"))
    desk.resident("a")
    desk.pin("a", 1)
    desk.pin("a", 2, device="e")

    failed = desk.load_failed("a", "e", BROKEN)

    assert error(failed, 2) is not None and not [e for e in failed if isinstance(e, Unavailable)]
    assert desk.held.pins["a"].device == "d" and desk.held.residents["a", "d"].pinned


def test_who_asked_for_a_pin_that_another_replaced_is_told_so():
    desk = Desk(devices=("d", "e"))
    desk.known("a")
    desk.pin("a", 1, device="d")

    assert answers(desk.pin("a", 2, device="e")) == {1: InvalidInput}
    assert answers(desk.loaded("a", "e", 1.0)) == {2: None}


def test_two_who_ask_for_the_same_pin_have_the_same_answer():
    desk = Desk()
    desk.pin("a", 1)
    desk.pin("a", 2)
    desk.inspected("a", Footprint(100, 0, 1.0))

    assert answers(desk.loaded("a", "d", 1.0)) == {1: None, 2: None}


def test_what_no_longer_fits_beside_a_pin_is_known():
    desk = Desk()
    desk.known("b", 500)
    desk.known("tiny", 10)
    desk.resident("a", 600)

    assert desk.pin("a", 1) == [Answer(1)]
    assert placement.displaced(desk.held) == ("b",)


@pytest.mark.parametrize("meanwhile", ["inspection", "load"])
def test_unpin_while_a_pin_is_under_way_ends_unpinned(meanwhile):
    desk = Desk()
    if meanwhile == "load":
        desk.known("a")
    desk.pin("a", 1)

    told = desk.unpin("a", 2)

    assert answers(told) == {1: InvalidInput, 2: None}
    if meanwhile == "inspection":
        assert desk.inspected("a", Footprint(100, 0, 1.0)) == []
    else:
        desk.loaded("a", "d", 1.0)
        assert not desk.held.residents["a", "d"].pinned
    assert not desk.held.pins


def test_a_pinned_unit_may_have_other_copies_which_may_leave():
    desk = Desk(devices=("d", "e"))
    desk.resident("a")
    desk.pin("a", 1)
    desk.second("a", "e")

    assert not desk.held.residents["a", "e"].pinned
    assert {Ready("a", "e"), Ready("a", "d")} <= set(desk.wanted("a"))
    desk.unwanted("a")
    desk.known("b", 950)
    desk.now = 10.0
    assert unloads(desk.wanted("b")) == [("a", "e")]


def test_a_pin_that_held_and_cannot_be_loaded_again_is_tried_again_after_the_cool_down():
    desk = Desk(devices=("d", "e"))
    desk.resident("a")
    desk.pin("a", 1)
    assert loads(desk.lost("d", "gone")) == [("a", "e")]

    desk.load_failed("a", "e", BROKEN)

    assert desk.custody.wake_at == pytest.approx(10.0)
    desk.now = 10.0
    assert loads(desk.wake()) == [("a", "e")]
    desk.loaded("a", "e", 1.0)
    assert desk.held.residents["a", "e"].pinned and desk.custody.wake_at == math.inf


def test_unloading_a_unit_that_loads_waits_until_it_has_come_and_gone():
    desk = Desk()
    desk.known("a")
    desk.load("a", 1)

    assert answers(desk.unload("a", 2)) == {1: InvalidInput}
    came = desk.loaded("a", "d", 1.0)
    gone = desk.unloaded("a", "d")

    assert unloads(came) == [("a", "d")] and not [e for e in came if isinstance(e, Ready)]
    assert answers(came) == {} and answers(gone) == {2: None}
    assert desk.held.ledgers["d"].lines()[Line.WEIGHTS] == 0


def test_unloading_a_unit_whose_load_fails_is_answered_then():
    desk = Desk()
    desk.known("a")
    desk.wanted("a")
    desk.unload("a", 1)

    assert answers(desk.load_failed("a", "d", BROKEN)) == {1: None}
    assert not desk.held.residents["a", "d"].yielding


def test_unloading_a_unit_that_leaves_waits_until_it_is_gone():
    desk = Desk()
    desk.resident("a")
    desk.unload("a", 1)

    assert desk.unload("a", 2) == []
    assert answers(desk.unloaded("a", "d")) == {1: None, 2: None}


def test_unloading_waits_for_every_copy():
    desk = Desk(devices=("d", "e"))
    desk.resident("a")
    desk.second("a", "e")

    assert sorted(unloads(desk.unload("a", 1))) == [("a", "d"), ("a", "e")]
    assert answers(desk.unloaded("a", "d")) == {}
    assert answers(desk.unloaded("a", "e")) == {1: None}


def test_a_unit_that_is_pinned_while_it_loads_to_be_unloaded_stays():
    desk = Desk()
    desk.known("a")
    desk.wanted("a")
    desk.unload("a", 1)

    assert answers(desk.pin("a", 2)) == {1: InvalidInput}
    assert answers(desk.loaded("a", "d", 1.0)) == {2: None}
    assert desk.state("a") is Residency.READY


def test_a_pin_is_refused_while_others_hold_what_it_needs():
    desk = Desk()
    desk.known("a", 500)
    desk.observed("d", 600)

    refused = desk.pin("a", 1)

    assert "other processes hold" in error(refused, 1).message
    assert loads(desk.observed("d", 0)) == []
    assert loads(desk.pin("a", 2)) == [("a", "d")]


def test_the_price_of_a_pin_is_known_before_it_is_made():
    desk = Desk(devices=("d", "e"))
    for unit, weights in (("a", 600), ("b", 500), ("c", 100)):
        desk.known(unit, weights)
    desk.pin("c", 1, device="e")
    desk.loaded("c", "e", 1.0)

    assert desk.custody.price("a", 0.0).device == "d"
    assert desk.custody.price("a", 0.0).displaced == ()  # b fits on e
    assert desk.custody.price("c", 0.0, "e", 4).displaced == ()
    desk.pin("a", 2)
    desk.loaded("a", "d", 1.0)
    assert desk.custody.price("b", 0.0).device == "e"
    desk.known("other", 500)
    assert desk.custody.price("b", 0.0).displaced == ("other",)
    assert isinstance(desk.custody.price("b", 0.0, "d").error, NoRoom)
    assert isinstance(desk.custody.price("new", 0.0).error, InvalidInput)
    assert isinstance(desk.custody.price("b", 0.0, "nowhere").error, InvalidInput)
    assert set(desk.held.pins) == {"a", "c"}


def test_a_pin_that_asks_for_a_size_first_is_asked_for_once():
    desk = Desk()

    assert desk.pin("a", 1) == [Inspect("a")] and desk.pin("a", 2) == []


def test_the_place_before_is_free_once_the_new_one_is_taken():
    desk = Desk(devices=("d", "e"))
    desk.resident("a", 600)
    desk.pin("a", 1)
    desk.known("b", 600)
    desk.pin("a", 2, device="e")

    assert answers(desk.pin("b", 3)) == {3: NoRoom}
    desk.loaded("a", "e", 1.0)
    desk.now = 10.0
    assert unloads(desk.pin("b", 4)) == [("a", "d")]


def test_who_is_idle_leaves_when_what_loads_would_take_the_room_of_a_pin_s_slots():
    desk = Desk()
    desk.resident("a", 500)
    desk.resident("x", 300)
    desk.pin("a", 1, min_slots=4)
    desk.known("c", 180)
    desk.now = 10.0

    assert unloads(desk.wanted("c")) == [("x", "d")]


def test_a_pin_s_own_batches_take_of_what_is_kept_for_them():
    desk = Desk()
    desk.resident("a", 500)
    desk.resident("b", 300)
    desk.pin("a", 1, min_slots=4)
    for _ in range(2):
        granted(desk.need(need("a", 10)))

    assert granted(desk.need(need("b", 10, 200))).max_cost == 160


def test_a_second_copy_that_fails_does_not_end_a_pin_that_is_on_its_way():
    desk = Desk(devices=("d", "e", "f"))
    desk.resident("a")
    desk.wanted("a")
    desk.spread("a", "e")
    desk.pin("a", 1, device="f")

    assert answers(desk.load_failed("a", "e", BROKEN)) == {}
    assert answers(desk.loaded("a", "f", 1.0)) == {1: None}


@pytest.mark.parametrize("wanted", [False, True])
def test_who_is_idle_where_a_pin_s_slots_should_be_leaves_at_once(wanted):
    desk = Desk()
    desk.resident("a", 500)
    desk.resident("x", 480)
    if wanted:
        desk.wanted("x")

    told = desk.pin("a", 1, min_slots=4)

    assert answers(told) == {1: None} and unloads(told) == ([] if wanted else [("x", "d")])


def test_a_refusal_speaks_of_a_device_that_is_large_enough():
    desk = Desk(devices=("d", "e"))
    desk.held.ledgers["d"] = Ledger(100, 0.0)
    desk.known("tiny", 10)
    desk.known("b", 500)
    desk.resident("a", 600, device="e")
    desk.pin("tiny", 1, device="d")
    desk.pin("a", 2, device="e")

    told = placement.no_room(desk.held, "b").message

    assert "; e has" in told and "pins hold a" in told and "Unpin one" in told
