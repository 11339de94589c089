from __future__ import annotations

from dataclasses import replace

from engine.closely import UnitView
from engine.orders import Action
from engine.view import ModelView
from tests.web.console.test_rows import here, rows, sources
from web.console import costs
from web.console.costs import Situation

GIB = 2**30
UNIT = UnitView("a", GIB, 0, 3.2, 1.0, None, ())
IDLE = Situation(rows(sources(ModelView("a", "loaded", (here("a", weights_bytes=GIB),))))[0], UNIT)
ABSENT = Situation(rows(sources(ModelView("a", "available")))[0], UNIT)


def text(action: Action, situation: Situation) -> str:
    return " ".join(costs.of(action, situation).lines)


def test_an_unload_with_work_says_what_waits_what_it_frees_and_how_long_it_takes_to_come_back():
    busy = replace(IDLE, row=replace(IDLE.row, waiting=14, in_flight=2))

    assert "14 queued and 2 in flight" in text(Action.UNLOAD, busy)
    assert "1.0 GiB" in text(Action.UNLOAD, busy)
    assert "3.2 s" in text(Action.UNLOAD, busy)
    assert costs.of(Action.UNLOAD, busy).hurts


def test_what_costs_nobody_anything_is_not_asked_about():
    assert not costs.of(Action.UNLOAD, IDLE).hurts
    assert not costs.of(Action.PAUSE, IDLE).hurts
    assert not costs.of(Action.PIN, IDLE).hurts
    assert not costs.of(Action.LOAD, ABSENT).hurts
    assert not costs.of(Action.RELOAD, IDLE).hurts


def test_one_that_was_just_used_will_be_missed():
    used = replace(IDLE, recent=True)

    assert costs.of(Action.UNLOAD, used).hurts
    assert costs.of(Action.PAUSE, used).hurts


def test_a_pin_that_leaves_no_room_for_others_names_them():
    greedy = replace(ABSENT, displaced=("b", "c"), leaving=("d",))

    assert "no room any more for b, c" in text(Action.PIN, greedy)
    assert "d would leave" in text(Action.PIN, greedy)
    assert costs.of(Action.PIN, greedy).hurts


def test_a_load_that_evicts_others_names_them():
    assert "d would leave" in text(Action.LOAD, replace(ABSENT, leaving=("d",)))
    assert costs.of(Action.LOAD, replace(ABSENT, leaving=("d",))).hurts


def test_a_drain_always_asks():
    assert costs.of(Action.DRAIN, IDLE).hurts


def test_what_is_not_known_is_told_as_that():
    unknown = replace(ABSENT, unit=replace(UNIT, weights_bytes=None, reload_seconds=None))

    assert text(Action.LOAD, unknown) == "It takes n/a and about n/a."
