from __future__ import annotations

from dataclasses import replace

import pytest

from engine.config import Settings
from engine.memory.rules import EvictionPolicy
from replay.configurations import Configuration, around, fits
from tests.replay.small import GIB, server, traffic, unit

SETTINGS = Settings.model_validate({"devices": "simulated:0"})


def test_a_configuration_is_the_same_in_earnest_and_in_the_twin():
    choice = Configuration(
        "all of it", {"slots": 3, "memory": GIB, "max_batch_cost": 9, "eviction": "lru", "window_share": 0.0}
    )
    own, there = choice.settings(SETTINGS), choice.server(server(unit("a"), unit("b")), SETTINGS)
    assert (own.slots, own.memory, own.eviction, own.max_batch_cost) == (3, GIB, "lru", 9)
    assert (there.cards[0].slots, there.cards[0].memory_bytes) == (3, GIB)
    assert there.memory.policy is EvictionPolicy.LRU and there.scheduling.window_share == 0.0
    assert {each.facts.max_batch_cost for each in there.units.values()} == {9}
    assert there.resident == () and there.headroom == SETTINGS.headroom


def test_there_are_ten_around_a_server_and_each_of_them_is_another():
    here = server(unit("a"), unit("b"), unit("c"), memory=8 * GIB, slots=2)
    sent = traffic(here, a=0.2, b=0.7, c=0.1)
    found = around(here, sent)
    assert len(found) >= 10 and len({(repr(each.changed), each.speed, each.cold) for each in found}) == len(
        found
    )
    keys = {key for each in found for key in each.changed}
    assert keys == {"slots", "max_batch_cost", "window_share", "pins", "memory", "eviction"}
    assert {each.server(here, SETTINGS).resident for each in found} == {("a", "b", "c"), ()}
    assert {each.speed for each in found} == {0.5, 1.0, 2.0}
    least = next(each for each in found if each.name == "less memory")
    assert fits(here) and not fits(least.server(here, SETTINGS))
    assert ("b",) in [each.changed.get("pins") for each in found]


def test_one_model_has_none_that_are_about_room():
    here = server(unit("a"))
    assert not any("memory" in each.changed for each in around(here, traffic(here)))
    faster = Configuration("faster", speed=2.0).trace(traffic(here).trace)
    assert faster.span == pytest.approx(traffic(here).trace.span / 2)


def test_a_pin_of_a_model_that_never_ran_is_left_out():
    here = replace(server(unit("a")), pins=())
    assert Configuration("", {"pins": ("a", "z")}).server(here, SETTINGS).pins == ("a",)
