"""Weights that leave a card stay in host memory while there is room, and come back from there."""

from __future__ import annotations

import pytest

from engine.memory.effects import BeginLoad, BeginUnload, DropHost
from tests.engine.memory.desk import BROKEN, Desk, answers, unloads


def turned_out(desk, unit="a", weights=600, other="b"):
    """`unit` had to leave for `other`."""
    desk.resident(unit, weights)
    desk.now += 10.0
    desk.known(other, 600)
    effects = desk.wanted(other)
    desk.unwanted(other)
    return effects


def test_weights_that_leave_are_kept_and_come_back_from_there():
    desk = Desk(host_memory=700)
    assert BeginUnload("a", "d", keep=True) in turned_out(desk)
    desk.unloaded("a", "d", kept_bytes=600)
    assert [kept.unit for kept in desk.held.host] == ["a"]

    assert desk.wanted("a") == [BeginLoad("a", "d", 600, from_host=True)]
    assert DropHost("a") in desk.loaded("a", "d", 0.1)
    assert desk.held.host.used_bytes == 0
    assert desk.held.residents["a", "d"].reload_seconds == pytest.approx(0.1)
    assert desk.held.residents["a", "d"].load_seconds == pytest.approx(1.0)


def test_the_least_recently_left_are_dropped_when_the_host_s_room_is_short():
    desk = Desk(host_memory=1000)
    turned_out(desk)
    desk.unloaded("a", "d", kept_bytes=600)
    desk.resident("b", 600)
    desk.now += 10.0
    desk.known("c", 600)

    effects = desk.wanted("c")

    assert DropHost("a") in effects and BeginUnload("b", "d", keep=True) in effects
    assert [kept.unit for kept in desk.held.host] == ["b"]


def test_what_an_operator_unloads_is_not_kept_and_a_copy_is_dropped():
    desk = Desk(host_memory=700)
    desk.resident("a", 600)
    assert BeginUnload("a", "d", keep=False) in desk.unload("a", 1)
    desk.unloaded("a", "d")
    turned_out(desk)
    desk.unloaded("a", "d", kept_bytes=600)

    effects = desk.unload("a", 2)

    assert effects[0] == DropHost("a") and answers(effects) == {2: None}
    assert desk.held.host.used_bytes == 0


def test_a_cpu_keeps_nothing_aside():
    desk = Desk(kinds={"d": "cpu"}, host_memory=700, own={u: {"device_kinds": ("cpu",)} for u in "ab"})

    assert BeginUnload("a", "d", keep=False) in turned_out(desk)


def test_a_copy_is_not_kept_while_another_is_on_a_card():
    desk = Desk(devices=("d", "e"), host_memory=700)
    desk.resident("a", 600)
    desk.second("a", "e")
    desk.now = 10.0
    desk.known("b", 600)

    (leaving,) = [e for e in desk.wanted("b") if isinstance(e, BeginUnload)]

    assert not leaving.keep


def test_what_could_not_be_kept_is_read_from_disk():
    desk = Desk(host_memory=700)
    turned_out(desk)
    desk.unloaded("a", "d", kept_bytes=0)

    assert desk.held.host.used_bytes == 0
    assert desk.wanted("a") == [BeginLoad("a", "d", 600, from_host=False)]


def test_what_turns_out_larger_than_the_host_s_room_is_dropped():
    desk = Desk(host_memory=700)
    turned_out(desk)

    assert DropHost("a") in desk.unloaded("a", "d", kept_bytes=800)
    assert desk.held.host.used_bytes == 0


def test_a_copy_that_cannot_be_read_is_dropped_and_the_disk_is_tried_next():
    desk = Desk(host_memory=700)
    turned_out(desk)
    desk.unloaded("a", "d", kept_bytes=600)
    desk.wanted("a")

    assert DropHost("a") in desk.load_failed("a", "d", BROKEN)
    desk.now += 10.0
    assert desk.wanted("a") == [BeginLoad("a", "d", 600, from_host=False)]


def test_another_device_does_not_read_what_is_still_being_copied():
    desk = Desk(devices=("d", "e"), host_memory=700)
    desk.resident("a", 600)
    desk.resident("x", 600, device="e")
    desk.uses("x", "e")
    desk.now = 10.0
    desk.known("b", 600)
    assert unloads(desk.wanted("b")) == [("a", "d")]
    desk.unload("x", 1)
    desk.unloaded("x", "e")

    (load,) = [e for e in desk.pin("a", 2, device="e") if isinstance(e, BeginLoad)]

    assert (load.device, load.from_host) == ("e", False)


def test_what_comes_back_fast_is_worth_less():
    desk = Desk(host_memory=5000)
    turned_out(desk, "a", 500)
    desk.unloaded("a", "d", kept_bytes=500)
    desk.wanted("a")
    desk.loaded("a", "d", 0.01)
    desk.unwanted("a")
    desk.resident("c", 400)
    desk.uses("a", times=5)
    desk.uses("c")

    assert [leaving.unit for leaving in desk.custody.leaving_order("d", desk.now)] == ["a", "c"]


def test_what_is_dropped_for_another_before_it_is_there_is_dropped_when_it_comes():
    desk = Desk(devices=("d", "e"), host_memory=700)
    for unit, device in (("a", "d"), ("b", "e")):
        desk.resident(unit, 600, device=device)
    desk.now = 10.0
    desk.known("c", 900)
    desk.known("d4", 900)
    assert unloads(desk.wanted("c")) == [("a", "d")]

    assert DropHost("a") in desk.wanted("d4")  # `b` leaves too, and takes its place

    assert DropHost("a") in desk.unloaded("a", "d", kept_bytes=600)
    assert [kept.unit for kept in desk.held.host] == ["b"]
