from __future__ import annotations

from engine.events import ResidencyChanged
from web.console.timeline import lines


def change(event: str, at: float, seconds: float = 0.0) -> ResidencyChanged:
    return ResidencyChanged("a", "cpu", event, at, seconds)


def told(changes, here=(), now=1000.0, seconds=1000.0):
    return [[(s.kind, s.x, s.width) for s in line.segments] for line in lines(changes, here, now, seconds)]


def test_it_loads_stays_and_leaves():
    changes = [change("loaded", 200.0, 100.0), change("evicted", 500.0)]

    assert told(changes) == [[("loading", 100.0, 100.0), ("ready", 200.0, 300.0)]]


def test_what_is_there_now_reaches_to_the_end():
    (found,) = told([change("loaded", 900.0, 50.0)], ["cpu"])

    assert found == [("loading", 850.0, 50.0), ("ready", 900.0, 100.0)]


def test_what_came_before_anything_is_remembered_was_there_since_ever():
    assert told([], ["cpu"]) == [[("ready", 0.0, 1000.0)]]
    assert told([change("unloaded", 400.0)]) == [[("ready", 0.0, 400.0)]]


def test_what_was_before_the_line_begins_is_cut_off():
    changes = [change("loaded", 100.0, 5.0), change("evicted", 200.0)]

    assert told(changes, now=2000.0) == [[]]


def test_a_load_that_failed_leaves_nothing():
    assert told([change("failed", 300.0)]) == [[]]
