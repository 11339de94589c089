"""What waits, and in which order it is taken out."""

from __future__ import annotations

import math
import sys
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.requests import ServiceClass
from engine.scheduling.batching import Room, form
from engine.scheduling.lanes import Lane
from tests.engine.scheduling.jobs import BACKGROUND, INTERACTIVE, STANDARD, job, lane, names


def test_the_head_is_due_first_whatever_its_class():
    waiting = lane(
        job("late", due=5.0, service_class=INTERACTIVE), job("soon", due=4.0, service_class=BACKGROUND)
    )

    assert waiting.head().id == "soon"
    assert waiting.pop_head().id == "soon"
    assert waiting.urgency() is INTERACTIVE


def test_the_next_is_of_the_most_urgent_class_and_due_first_in_it():
    waiting = lane(
        job("b", due=1.0, service_class=BACKGROUND),
        job("s2", due=3.0),
        job("s1", due=2.0),
        job("i", due=9.0, service_class=INTERACTIVE),
    )

    assert names(waiting.pop_next() for _ in range(4)) == ["i", "s1", "s2", "b"]


def test_those_due_together_go_in_the_order_they_came():
    waiting = lane(*[job(f"j{n}", due=1.0) for n in range(50)])

    assert names(waiting.pop_next() for _ in range(50)) == [f"j{n}" for n in range(50)]


def test_an_empty_lane_has_no_head_no_urgency_and_no_age():
    empty = Lane("a")

    assert (empty.head(), empty.urgency(), empty.oldest_arrival()) == (None, None, math.inf)
    assert not empty.waits(STANDARD)


def test_a_cleared_lane_gives_everything_back_once():
    waiting = lane(job("x", service_class=BACKGROUND), job("y"))

    assert sorted(names(waiting.clear())) == ["x", "y"]
    assert (len(waiting), waiting.cost, waiting.clear()) == (0, 0, [])


def test_what_is_put_back_is_the_head_and_is_itself_again():
    waiting = lane(job("x", due=1.0), job("y", due=2.0))
    late = job("late", due=50.0, service_class=BACKGROUND, attempt=2)
    waiting.put_back(late)

    assert (waiting.head(), waiting.pop_head(), waiting.head().id) == (late, late, "x")


def taken(waiting, jobs):
    """The next so many, each going into a batch."""
    out = []
    for _ in range(jobs):
        out.append(waiting.pop_next())
        waiting.went(out[-1])
    return out


def test_principals_have_the_same_cost_whatever_each_has_waiting():
    waiting = lane(
        *[job(due=float(n), principal="many small", cost=5) for n in range(1000)],
        *[job(due=5000.0 + n, principal="few large", cost=50) for n in range(100)],
        *[job(due=9000.0 + n, principal="", cost=10) for n in range(400)],
    )

    had = Counter()
    for each in taken(waiting, 400):
        had[each.principal] += each.cost

    assert max(had.values()) - min(had.values()) <= 50


def test_within_a_principal_the_order_is_by_due_time():
    waiting = lane(*[job(f"{who}{n}", due=float(-n), principal=who) for n in range(20) for who in "ab"])

    out = names(taken(waiting, 40))

    assert [name for name in out if name[0] == "a"] == [f"a{n}" for n in reversed(range(20))]


def test_the_job_due_first_of_the_whole_lane_is_in_the_next_batch_whoever_s_turn_it_is():
    waiting = lane(*[job(due=9.0, principal="a") for _ in range(50)])
    form(waiting, Room(100), 0.0, lambda job: True)
    for n in range(20):
        waiting.add(job(f"b{n}", due=20.0, principal="b"))
    waiting.add(job("first", cost=30, due=1.0, principal="a"))

    batch = form(waiting, Room(80), 0.0, lambda job: True).jobs

    assert batch[0].id == "first"
    assert Counter(each.principal for each in batch) == {"a": 2, "b": 4}  # and it is charged for it


def test_what_is_looked_at_and_put_back_is_not_charged():
    large = [job(cost=90, due=float(n), principal="a") for n in range(5)]
    small = [job(cost=10, due=50.0, principal=who) for who in "ab" for _ in range(20)]
    waiting = lane(*large, *small)

    form(waiting, Room(100), 0.0, lambda job: True)  # one large one, and others passed over
    had = Counter()
    for each in taken(waiting, 20):
        had[each.principal] += each.cost

    assert had["b"] - had["a"] == pytest.approx(90, abs=90)


def test_who_comes_anew_has_earned_nothing_by_not_asking():
    waiting = lane(*[job(due=float(n), principal="a") for n in range(500)])
    taken(waiting, 400)
    for _ in range(100):
        waiting.add(job(due=0.0, principal="b"))

    assert Counter(each.principal for each in taken(waiting, 40)) == {"a": 20, "b": 20}


def test_who_leaves_and_comes_back_is_charged_for_what_it_had():
    waiting = lane(*[job(due=float(n), principal=who, cost=1) for n in range(100) for who in "ab"])
    waiting.add(job(principal="c", cost=20))
    assert taken(waiting, 3)[2].principal == "c"
    for _ in range(20):
        waiting.add(job(principal="c", cost=1))

    assert all(each.principal != "c" for each in taken(waiting, 38))


def test_nothing_of_a_job_or_of_a_principal_is_kept_once_it_has_left():
    waiting = lane(job("stays", due=-1.0, service_class=BACKGROUND))
    alone = job("alone")
    held_by_us = sys.getrefcount(alone)
    left = []
    for n in range(20_000):
        left.append(job(due=float(n), arrived=float(n), principal=f"p{n}"))
        waiting.add(left[-1])
        waiting.went(waiting.pop_next())

    kept = [n for n in range(20_000) if sys.getrefcount(left[n]) > held_by_us]
    assert len(kept) < 200
    assert len(waiting._turns) == 1  # the class that ran dry, and with it who had had what

    waiting.add(job(due=-1.0, principal="here always"))
    for n in range(20_000):
        waiting.add(job(due=float(n), principal="here always", cost=1))
        waiting.add(job(due=float(n), principal=f"p{n}", cost=100))
        waiting.went(waiting.pop_next())
        waiting.went(waiting.pop_next())
    assert len(waiting._turns[STANDARD]._past) <= 1024


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 1000), st.floats(0, 10), st.sampled_from(ServiceClass), st.booleans()))
)
def test_cost_and_length_are_those_of_what_is_in_it(steps):
    waiting, inside = Lane("a"), {}
    for cost, due, service_class, take in steps:
        if take and inside:
            out = waiting.pop_head() if cost % 2 else waiting.pop_next()
            del inside[out.id]
        else:
            added = job(
                cost=cost, due=due, service_class=service_class, arrived=due, principal=f"p{cost % 7}"
            )
            waiting.add(added)
            inside[added.id] = added
        assert (len(waiting), waiting.cost) == (len(inside), sum(j.cost for j in inside.values()))
        assert waiting.oldest_arrival() == min((j.arrived for j in inside.values()), default=math.inf)
        of_one = sum(j.principal == "p3" for j in inside.values())
        assert waiting.jobs_of("p3") == of_one
        assert waiting.urgency() == min((j.service_class for j in inside.values()), default=None)
        assert (waiting.head().due if inside else None) == min((j.due for j in inside.values()), default=None)
