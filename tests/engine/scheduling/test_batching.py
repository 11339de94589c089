"""Which jobs form the next batch."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.requests import ServiceClass
from engine.scheduling.batching import LOOK_AHEAD, Formed, Room, form
from tests.engine.scheduling.jobs import BACKGROUND, INTERACTIVE, STANDARD, job, lane, names


def everyone(job):
    return True


@pytest.mark.parametrize(
    ("costs", "room", "formed"),
    [
        ([10, 10, 10], Room(100), [0, 1, 2]),
        ([10, 10, 10], Room(20), [0, 1]),
        ([10, 10, 10], Room(100, {STANDARD: 20}), [0, 1]),
        ([10, 10, 10], Room(100, jobs=2), [0, 1]),
        ([50, 10, 10], Room(100, {STANDARD: 20}), [0]),  # over the soft limit it goes alone
        ([50, 10, 10], Room(49), []),  # over the room it stays, and nothing goes
        ([10, 50, 10], Room(20), [0, 2]),  # what does not fit is passed over
        ([94, 50, 6], Room(100), [0]),  # but not to fill a little of it
        ([93, 50, 7], Room(100), [0, 2]),
        ([10, 10], Room(100, jobs=0), []),
        ([10], Room(10), [0]),
        ([], Room(10), []),
    ],
)
def test_a_batch_is_the_job_due_first_and_what_fits_with_it(costs, room, formed):
    waiting = lane(*[job(str(n), cost=cost, due=float(n)) for n, cost in enumerate(costs)])

    assert names(form(waiting, room, 0.0, everyone).jobs) == [str(n) for n in formed]
    assert len(waiting) == len(costs) - len(formed)


def test_the_oldest_due_job_goes_even_when_its_class_is_the_least_urgent():
    old = job("old", due=1.0, service_class=BACKGROUND)
    waiting = lane(*[job(due=2.0, service_class=INTERACTIVE) for _ in range(10)], old)

    assert form(waiting, Room(30), 0.0, everyone).jobs[0] == old


def test_less_urgent_jobs_ride_along_only_as_far_as_their_own_class_may_go():
    urgent = [job(f"i{n}", cost=10, due=1.0, service_class=INTERACTIVE) for n in range(3)]
    behind = [job(f"b{n}", cost=10, due=9.0, service_class=BACKGROUND) for n in range(9)]
    waiting = lane(*urgent, *behind)

    formed = form(waiting, Room(1000, {INTERACTIVE: 100, BACKGROUND: 45}), 0.0, everyone)

    assert names(formed.jobs) == ["i0", "i1", "i2", "b0"]


def test_the_others_go_by_class_before_due_time():
    waiting = lane(
        job("head", due=1.0),
        job("soon", due=2.0, service_class=BACKGROUND),
        job("urgent", due=9.0, service_class=INTERACTIVE),
    )

    assert names(form(waiting, Room(20), 0.0, everyone).jobs) == ["head", "urgent"]


@pytest.mark.parametrize(
    ("limits", "formed"),
    [
        ({"max_batch_cost": 25}, ["0", "1"]),
        ({"max_batch_jobs": 2}, ["0", "1"]),
        ({"max_batch_cost": 10}, ["0"]),
        ({"max_batch_jobs": 1}, ["0"]),
    ],
)
@pytest.mark.parametrize("where", [0, 1, 2])
def test_the_tightest_profile_in_a_batch_limits_it(limits, formed, where):
    jobs = [job(str(n), due=float(n), **(limits if n == where else {})) for n in range(4)]

    taken = form(lane(*jobs), Room(1000), 0.0, everyone).jobs

    assert sum(j.cost for j in taken) <= min(j.max_batch_cost for j in taken)
    assert len(taken) <= min(j.max_batch_jobs for j in taken)
    if where == 0:
        assert names(taken) == formed


def test_a_sequence_joins_only_when_its_tokens_fit():
    waiting = lane(
        job("0", due=0.0, kv_tokens=60), job("1", due=1.0, kv_tokens=60), job("2", due=2.0, kv_tokens=40)
    )

    assert names(form(waiting, Room(1000, kv_tokens=100), 0.0, everyone).jobs) == ["0", "2"]
    assert form(waiting, Room(1000, kv_tokens=59), 0.0, everyone).jobs == []


@pytest.mark.parametrize(("passed", "joins"), [(LOOK_AHEAD - 1, True), (LOOK_AHEAD, False)])
def test_only_so_many_are_passed_over(passed, joins):
    large = [job(cost=50, due=float(n)) for n in range(1 + passed)]
    waiting = lane(*large, job("small", cost=1, due=99.0))

    assert ("small" in names(form(waiting, Room(60), 0.0, everyone).jobs)) == joins


def test_dead_jobs_leave_on_the_way_and_are_told_apart():
    gone, late, dead_and_late = (
        job("gone", due=0.0),
        job("late", due=1.0, deadline=5.0),
        job("both", deadline=1.0),
    )
    fine = job("fine", due=50.0, deadline=5.1)
    waiting = lane(gone, late, dead_and_late, fine)

    formed = form(waiting, Room(1000), 5.0, lambda j: j.id not in ("gone", "both"))

    assert formed == Formed(jobs=[fine], expired=[late], abandoned=[gone, dead_and_late])
    assert len(waiting) == 0


def test_a_head_that_does_not_fit_stays_and_the_dead_before_it_are_still_taken_out():
    waiting = lane(job("gone", due=0.0), job("large", cost=50, due=1.0))

    formed = form(waiting, Room(10), 0.0, lambda j: j.id != "gone")

    assert (names(formed.jobs), names(formed.abandoned), len(waiting)) == ([], ["gone"], 1)


drawn = st.builds(
    job,
    cost=st.integers(1, 100),
    due=st.floats(0, 20),
    service_class=st.sampled_from(ServiceClass),
    deadline=st.one_of(st.just(1e9), st.floats(0, 10)),
    kv_tokens=st.integers(0, 100),
    max_batch_cost=st.integers(50, 400),
    max_batch_jobs=st.integers(1, 10),
)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(drawn, max_size=40),
    st.integers(0, 300),
    st.integers(0, 300),
    st.integers(0, 8),
    st.integers(0, 200),
)
def test_whatever_waits_a_batch_is_within_every_limit_and_nothing_is_lost(jobs, cost, soft, most, kv_tokens):
    dead = {j.id for n, j in enumerate(jobs) if n % 7 == 3}
    waiting, now = lane(*jobs), 5.0
    alive = [j for j in jobs if j.id not in dead and j.deadline > now]

    room = Room(cost, dict.fromkeys(ServiceClass, soft), most, kv_tokens)
    formed = form(waiting, room, now, lambda j: j.id not in dead)

    taken = formed.jobs
    assert sorted(names([*taken, *formed.expired, *formed.abandoned, *waiting])) == sorted(names(jobs))
    assert not {*names(taken)} & dead and all(j.deadline > now for j in taken)
    assert (
        sum(j.cost for j in taken) <= cost
        and sum(j.kv_tokens for j in taken) <= kv_tokens
        and len(taken) <= most
    )
    if len(taken) > 1:
        assert sum(j.cost for j in taken) <= min(soft, *(j.max_batch_cost for j in taken))
        assert len(taken) <= min(j.max_batch_jobs for j in taken)
    if taken and taken[0].due != min(j.due for j in alive):
        turn, head = taken[0], min(alive, key=lambda j: j.due)
        assert turn.service_class is min(j.service_class for j in alive)
        assert (
            turn.cost + head.cost > min(cost, soft, turn.max_batch_cost, head.max_batch_cost)
            or min(most, turn.max_batch_jobs, head.max_batch_jobs) < 2
        )
    elif not taken and alive:
        first = min(alive, key=lambda j: j.due)
        others = [j for j in alive if j.due == first.due]
        assert most < 1 or any(j.cost > cost or j.kv_tokens > kv_tokens for j in others)
