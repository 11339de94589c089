"""What the batcher decides, message by message; and whatever the memory manager answers."""

from __future__ import annotations

import itertools
import math
import sys
from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.conversation import (
    Denied,
    Finished,
    Granted,
    Lease,
    Lost,
    Need,
    Outcome,
    Ready,
    Release,
    Run,
    Spread,
    TooLarge,
    Unavailable,
    Unwanted,
    Wanted,
)
from engine.errors import Failure, QueueFull
from engine.requests import ServiceClass
from engine.scheduling.dispatch import Dispatch
from engine.scheduling.effects import Done, Dropped, Failed
from engine.scheduling.policy import Why
from engine.scheduling.rules import SchedulingRules
from tests.engine.scheduling.jobs import BACKGROUND, INTERACTIVE, STANDARD, facts, job, names

BROKEN = Failure("LoadFailed", "no such weights")
EXHAUSTED = Failure("ResourceExhausted", "no memory")


def dispatch(slots=1, devices=("d",), **units):
    known = {"a": facts(), "g": facts("g", generative=True, max_slots=1)} | units
    names = {f"{device}/{n}": device for device in devices for n in range(slots)}
    return Dispatch(known.__getitem__, SchedulingRules(), names, dict.fromkeys(devices, "simulated"))


def warm(made, unit="a", now=0.0):
    for slot in made.slots:
        made.on_idle(slot, now)
    made.on_ready(Ready(unit, "d"), now)
    return made


def lease(need, max_cost=1 << 40, id=1, kv_tokens=0):
    return Granted(Lease(id, need.unit, need.device, need.slot, max_cost), kv_tokens)


def needs(effects):
    return [e for e in effects if isinstance(e, Need)]


def test_work_for_a_cold_unit_is_told_and_nothing_is_asked_for():
    made = dispatch()
    made.on_idle("d/0", 0.0)

    first, later = job(due=1.0), job(due=2.0)
    assert made.on_enqueue([later, first], 0.0) == [Wanted("a", STANDARD, 1.0)]
    assert made.on_enqueue([job(due=2.0)], 0.0) == []
    urgent = job(due=0.5, service_class=INTERACTIVE)
    assert made.on_enqueue([urgent], 0.0) == [Wanted("a", INTERACTIVE, 0.5)]


def test_how_urgent_work_is_that_a_unit_leaves_behind_is_told_when_it_has_left():
    made = warm(dispatch())
    made.on_enqueue([job(due=2.0)], 0.0)

    assert made.on_enqueue([job(due=1.0)], 0.0) == []
    assert made.on_left("a", "d", 0.0) == [Wanted("a", STANDARD, 1.0)]
    assert made.on_left("a", "d", 0.0) == []


def test_a_lease_is_asked_for_before_a_batch_is_formed():
    made = warm(dispatch())

    told, need = made.on_enqueue([job("x", cost=10)], 0.0)
    effects = made.on_granted(lease(need), 1.0)

    wanted = Wanted("a", due=told.due, there=("d",))
    assert (told, need) == (wanted, Need("a", "d", "d/0", min_cost=10, want_cost=256))
    run, unwanted = effects
    assert names(run.jobs) == ["x"] and unwanted == Unwanted("a")


def test_a_job_that_comes_between_asking_and_granting_goes_too():
    made = warm(dispatch())
    (_, need) = made.on_enqueue([job("x")], 0.0)
    made.on_enqueue([job("y")], 0.0)

    assert names(made.on_granted(lease(need), 0.0)[0].jobs) == ["x", "y"]


def test_idle_slots_share_what_waits():
    made = warm(dispatch(slots=4))

    asked = needs(made.on_enqueue([job(cost=100) for _ in range(20)], 0.0))

    assert [need.want_cost for need in asked] == [500, 667, 1000, 2000][: len(asked)]
    assert len(asked) == 3  # what the third asked for is the rest


def test_a_unit_runs_in_no_more_slots_than_it_may():
    made = warm(dispatch(slots=4, a=facts(max_slots=2)))

    assert len(needs(made.on_enqueue([job(cost=2000) for _ in range(9)], 0.0))) == 2


def test_a_denied_slot_takes_other_work_at_once():
    made = warm(dispatch(b=facts("b")))
    made.on_ready(Ready("b", "d"), 0.0)
    (need,) = needs(made.on_enqueue([job(unit="a"), job(unit="b")], 0.0))

    (other,) = needs(made.on_denied(Denied(need.slot, need.unit, "d", "busy"), 0.0))

    assert {need.unit, other.unit} == {"a", "b"}
    (again,) = needs(made.on_denied(Denied(other.slot, other.unit, "d", "busy"), 0.0)) or [None]
    assert again is None
    assert needs(made.on_ready(Ready("a", "d"), 0.0))[0].unit == "a"


def test_nothing_fits_after_all_and_the_lease_goes_back():
    made = warm(dispatch())
    (_, need) = made.on_enqueue([job("x", deadline=5.0)], 0.0)

    effects = made.on_granted(lease(need), 6.0)

    (dropped,) = [e for e in effects if isinstance(e, Dropped)]
    assert (dropped.reason, names(dropped.jobs)) == ("expired", ["x"])
    assert [type(e) for e in effects] == [Dropped, Release, Unwanted]


def test_jobs_that_can_never_fit_fail_alone():
    made = warm(dispatch())
    (_, need) = made.on_enqueue([job("large", cost=500, due=1.0), job("small", cost=5)], 0.0)

    effects = made.on_too_large(TooLarge(need.slot, "a", "d", 100, 1 << 62), 0.0)

    (failed,) = [e for e in effects if isinstance(e, Failed)]
    assert names(failed.jobs) == ["large"] and failed.failure.kind == "InputTooLong"
    assert needs(effects)[0].min_cost == 5


def test_what_is_as_large_as_what_can_never_fit_is_not_asked_for_again():
    made = warm(dispatch(), "g")
    jobs = [
        job(name, cost=c, due=d, unit="g", kv_tokens=k)
        for name, c, d, k in [("both", 60, 1.0, 60), ("long", 10, 2.0, 90), ("larger", 70, 3.0, 80)]
    ]
    (_, need) = made.on_enqueue(jobs, 0.0)

    effects = made.on_too_large(TooLarge(need.slot, "g", "d", 100, 99), 0.0)

    (failed,) = [e for e in effects if isinstance(e, Failed)]
    assert sorted(names(failed.jobs)) == ["both", "larger"]
    assert (needs(effects)[0].min_cost, needs(effects)[0].kv_min) == (10, 90)


def test_a_sequence_is_asked_for_with_its_tokens_whatever_else_waits():
    made = warm(dispatch(), "g")
    urgent = [job(unit="g", kv_tokens=10, due=9.0, service_class=INTERACTIVE) for _ in range(20)]

    (_, need) = made.on_enqueue([*urgent, job("old", unit="g", kv_tokens=1000, due=1.0)], 0.0)

    assert need.kv_min == 1000 <= need.kv_want
    assert "old" in names(made.on_granted(lease(need, kv_tokens=need.kv_want), 0.0)[0].jobs)


def started(made, *jobs, kv_tokens=100, now=0.0):
    (need,) = needs(made.on_enqueue(jobs, now))
    (run,) = [e for e in made.on_granted(lease(need, kv_tokens=kv_tokens), now) if isinstance(e, Run)]
    return run


def test_sequences_go_on_quantum_by_quantum_until_they_are_done():
    made = warm(dispatch(), "g")
    run = started(made, job("x", unit="g", kv_tokens=40), job("y", unit="g", kv_tokens=60))

    first = made.on_finished(Finished(run.id, run.lease, (Outcome("x", output="x"),), 0.01), 1.0)
    (need,) = needs(made.on_idle("d/0", 1.0))
    (again,) = [e for e in made.on_granted(lease(need, kv_tokens=60), 1.0) if isinstance(e, Run)]
    last = made.on_finished(Finished(again.id, again.lease, (Outcome("y", output="y"),), 0.01), 2.0)

    assert first == [Release(run.lease, 60, 0.01, cost=20), Done((Outcome("x", output="x"),))]
    assert (need.kv_floor, again.jobs, again.running) == (60, (), ("y",))
    assert last == [Release(again.lease, 0, 0.01), Done((Outcome("y", output="y"),)), Unwanted("g")]


@pytest.mark.parametrize(("deadline", "reason"), [(math.inf, "abandoned"), (5.0, "expired")])
def test_a_sequence_that_nobody_waits_for_leaves_with_the_next_quantum(deadline, reason):
    made = warm(dispatch(), "g")
    run = started(made, job("x", unit="g", kv_tokens=40, deadline=deadline))
    made.on_finished(Finished(run.id, run.lease, (), 0.01), 1.0)
    made.wanted = lambda job: deadline < math.inf
    (need,) = needs(made.on_idle("d/0", 6.0))

    effects = made.on_granted(lease(need, kv_tokens=40), 6.0)
    (leaving,) = [e for e in effects if isinstance(e, Run)]
    after = made.on_finished(Finished(leaving.id, leaving.lease, (), 0.01), 6.1)

    assert leaving.leaving == ("x",)
    (dropped,) = [e for e in after if isinstance(e, Dropped)]
    assert (dropped.reason, names(dropped.jobs)) == (reason, ["x"])
    assert Release(leaving.lease, 0, 0.01) in after


def test_a_unit_is_charged_what_it_really_spent():
    made = warm(dispatch(a=facts(weight=2.0)))
    made.sizing.observe("a", "d", 10, 5.0)

    run = started(made, job(cost=10))
    expected = made.share.virtual("a", STANDARD)
    made.on_finished(Finished(run.id, run.lease, (), 1.0), 1.0)

    assert (expected, made.share.virtual("a", STANDARD)) == (2.5, 0.5)


def test_a_unit_that_cannot_be_had_fails_what_waits_for_it():
    made = dispatch()
    made.on_enqueue([job("x"), job("y")], 0.0)

    failed, unwanted = made.on_unavailable(Unavailable("a", BROKEN), 1.0)

    assert sorted(names(failed.jobs)) == ["x", "y"] and unwanted == Unwanted("a")


def test_a_lane_that_ran_dry_before_the_grant_leaves_nothing_behind():
    made = warm(dispatch(slots=2))
    (_, need) = made.on_enqueue([job("x")], 0.0)
    made.on_unavailable(Unavailable("a", BROKEN), 0.0)

    assert made.on_granted(lease(need), 0.0) == [Release(lease(need).lease)]
    assert not made.lanes


def test_the_predicted_wait_is_what_waits_at_the_learned_speed():
    made = warm(dispatch(slots=2))
    for cost in (1, 1000, 2048):
        made.sizing.observe("a", "d", cost, cost / 1000)
    for _ in range(2):  # both slots are busy
        started(made, job(cost=2048))
    made.on_enqueue([job(cost=1024) for _ in range(8)], 0.0)

    assert made.predicted_wait("a") == pytest.approx(8 * 1.024 / 2, rel=0.01)
    assert isinstance(made.refusal([job(deadline=3.0)], 0.0), QueueFull)
    assert made.refusal([job(deadline=5.0)], 0.0) is None


def exhausted(made, run, *names_, now=1.0):
    outcomes = tuple(
        Outcome(ref.id, failure=EXHAUSTED) if ref.id in names_ else Outcome(ref.id, output=ref.id)
        for ref in run.jobs
    )
    finished = Finished(run.id, run.lease, outcomes, 0.01, out_of_memory=True, peak_bytes=77)
    return made.on_finished(finished, now)


def test_a_job_that_ran_out_of_memory_alone_has_one_more_try_before_all_others():
    made = warm(dispatch())
    run = started(made, job("fine", cost=5), job("big", cost=9, due=50.0))
    made.on_enqueue([job("waits", due=1.0)], 0.5)

    effects = exhausted(made, run, "big")

    assert effects == [
        Release(run.lease, 0, 0.01, cost=14, peak_bytes=77, out_of_memory=True),
        Done((Outcome("fine", output="fine"),)),
    ]
    (need,) = needs(made.on_idle("d/0", 1.0))
    (again,) = [e for e in made.on_granted(lease(need), 1.0) if isinstance(e, Run)]
    assert (names(again.jobs), again.attempt) == (["big", "waits"], 2)


def test_the_second_time_it_fails_for_good():
    made = warm(dispatch())
    exhausted(made, started(made, job("big")), "big")
    (need,) = needs(made.on_idle("d/0", 1.0))
    (again,) = [e for e in made.on_granted(lease(need), 1.0) if isinstance(e, Run)]

    effects = exhausted(made, again, "big", now=2.0)

    assert Done((Outcome("big", failure=EXHAUSTED),)) in effects
    assert not made.lanes and not needs(made.on_idle("d/0", 2.0))


def test_what_failed_otherwise_has_no_second_try():
    made = warm(dispatch())
    run = started(made, job("x"), job("y"))
    outcomes = (Outcome("x", failure=BROKEN), Outcome("y", failure=EXHAUSTED))

    (_, done) = made.on_finished(Finished(run.id, run.lease, outcomes, 0.01), 1.0)

    assert done == Done(outcomes) and not made.lanes


def test_the_next_up_are_told_in_the_order_in_which_they_would_go_and_why():
    units = {unit: facts(unit) for unit in "bcdef"}
    made = warm(dispatch(**units))
    for unit in "bcdef":
        made.on_ready(Ready(unit, "d"), 0.0)
    run = started(made, job(unit="b", cost=2000))
    made.share.charge("b", STANDARD, 5.0, 1.0, 0.0)
    made.share.charge("f", BACKGROUND, 0.0, 1.0, 0.0)
    made.sizing.observe("d", "d", 10, 0.5)
    jobs = [
        job(unit="b", due=9.0),
        job(unit="c", due=9.0),
        job(unit="d", due=1.3),  # 0.5 s from 1.0 on is too late
        job(unit="e", due=99.0, service_class=INTERACTIVE),
        job(unit="f", due=99.0, service_class=BACKGROUND),
    ]
    made.share.charge("d", STANDARD, 0.1, 1.0, 0.0)
    for each in jobs:
        made.on_enqueue([each], 0.9)

    told = made.next_up("d", 1.0)
    after = made.next_up("d", 1.0)
    order = []
    made.on_finished(Finished(run.id, run.lease, (), 0.0), 1.0)
    for _ in jobs:
        (need,) = needs(made.on_idle("d/0", 1.0))
        order.append(need.unit)
        (again,) = [e for e in made.on_granted(lease(need), 1.0) if isinstance(e, Run)]
        made.on_finished(Finished(again.id, again.lease, (), again.seconds), 1.0)

    assert told == after
    assert [(s.unit, s.why) for s in told] == [
        ("f", Why.FLOOR),
        ("e", Why.SHARE),
        ("d", Why.HURRY),
        ("c", Why.SHARE),
        ("b", Why.SHARE),
    ]
    assert order == [s.unit for s in told]
    assert told[4].had == pytest.approx(5.0) and told[2].due_in == pytest.approx(0.3)


@pytest.mark.parametrize("other", [False, True])
def test_a_slot_waits_for_company_only_when_it_has_nothing_else_to_do(other):
    made = warm(dispatch(b=facts("b")))
    made.on_ready(Ready("b", "d"), 0.0)
    run = started(made, job())
    for when in (1e-4, 2e-4):
        made.on_enqueue([job(arrived=when)], when)
    if other:
        made.on_enqueue([job(unit="b", arrived=2e-4)], 2e-4)
    made.on_finished(Finished(run.id, run.lease, (), 1e-4), 3e-4)

    assert bool(needs(made.on_idle("d/0", 3e-4))) == other


def test_a_lane_that_waits_for_company_is_told_as_held_and_goes_when_it_has_waited():
    made = warm(dispatch(slots=2))
    started(made, job(arrived=0.0))

    held = [needs(made.on_enqueue([job(arrived=when)], when)) for when in (1e-4, 2e-4)]
    (standing,) = made.next_up("d", 2e-4)

    assert held == [[], []]
    assert (standing.jobs, 2e-4 + standing.held_for) == (2, pytest.approx(made.wake_at))
    assert [need.unit for need in needs(made.on_wake(made.wake_at))] == ["a"]
    assert made.wake_at == math.inf


@pytest.mark.parametrize("told", [0, 200])
@pytest.mark.parametrize("waiting", [0, 1000, 10_000])
def test_what_a_job_costs_does_not_grow_with_what_waits(waiting, told):
    """Counted in function calls, which no other process changes."""
    units = {f"u{n}": facts(f"u{n}") for n in range(told)}
    made = warm(dispatch(**units))
    for unit in units:
        made.on_ready(Ready(unit, "d"), 0.0)
    run = started(made, job(cost=2048))
    for unit in units:
        made.on_enqueue([job(unit=unit, cost=2000)], 0.0)
    for n in range(waiting):
        made.on_enqueue([job(cost=48, due=100.0 + n, principal=f"p{n % 1000}")], 0.0)
    numbers = itertools.count(2)

    def serve():
        nonlocal run
        for n in range(40):
            made.on_enqueue([job(cost=48, due=1e6 + n, principal=f"p{n}")], 1.0)
        made.on_finished(Finished(run.id, run.lease, (), 0.01), 1.0)
        (need,) = needs(made.on_idle("d/0", 1.0))
        granted = made.on_granted(lease(need, need.want_cost, next(numbers)), 1.0)
        (run,) = [e for e in granted if isinstance(e, Run)]

    serve()
    assert calls(serve) < 5500


def calls(work):
    made = 0

    def count(frame, event, arg):
        nonlocal made
        made += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return made


def test_the_limits_count_what_waits_now_and_whose_it_is():
    rules = SchedulingRules(max_key_jobs=2, max_model_cost=1000, max_waiting_jobs=5)
    made = warm(Dispatch(facts, rules, {"d/0": "d"}, {"d": "simulated"}))

    def refused(principal="x", unit="a"):
        error = made.refusal([job(principal=principal, unit=unit)], 0.0)
        return error.message.partition("limit (")[2].partition(")")[0] if error else None

    run = started(made, job(cost=2048))
    made.on_enqueue([job(principal="x"), job(principal="x")], 0.0)
    assert (refused(), refused("y"), refused()) == (None, None, "max_key_jobs")
    made.on_enqueue([job(principal="y", cost=980)], 0.0)
    assert (refused("y"), refused("x", "b")) == ("max_model_cost", None)
    made.on_enqueue([job(unit="b"), job(unit="b")], 0.0)
    assert refused("z", "b") == "max_waiting_jobs"

    made.on_finished(Finished(run.id, run.lease, (), 1.0), 1.0)
    (need,) = needs(made.on_idle("d/0", 1.0))
    made.on_granted(lease(need), 1.0)
    assert (refused("x"), refused("z", "b")) == (None, None)


class Dispatcher(RuleBasedStateMachine):
    """A memory manager that answers as it likes, and slots that finish when they like."""

    @initialize(slots=st.integers(1, 3), running=st.integers(1, 3), cost=st.sampled_from([20, 200, 1 << 62]))
    def open(self, slots, running, cost):
        units = {"a": facts(max_batch_cost=cost), "b": facts("b", weight=3.0, max_slots=1)}
        units["g"] = facts("g", generative=True, max_slots=1, max_running=running)
        self.dispatch = dispatch(slots, devices=("d", "e"), **units)
        self.dispatch.wanted = lambda job: job.id not in self.gone
        self.now = 0.0
        self.numbers = itertools.count(1)
        self.jobs, self.gone, self.ended, self.tries = {}, set(), {}, Counter()
        self.asked, self.runs, self.leases = [], [], set()
        self.kv = {}  # what the unit's sequences hold, by the grant
        self.wanted, self.ready = set(), set()
        self.lost, self.hung = set(), []
        for slot in self.dispatch.slots:
            self.perform(self.dispatch.on_idle(slot, self.now))

    def perform(self, effects):
        for effect in effects:
            match effect:
                case Need():
                    assert effect.unit in self.wanted
                    assert not any(effect.slot == need.slot for need in self.asked), "a slot asks twice"
                    assert not any(effect.slot == run.lease.slot for run in self.runs), "a busy slot asks"
                    assert (
                        effect.kv_floor <= effect.kv_min <= effect.kv_want
                        and effect.want_cost >= effect.min_cost
                    )
                    self.asked.append(effect)
                case Run():
                    self.started(effect)
                case Release(lease=lease):
                    self.leases.remove(lease.id)
                case Spread(unit, device):
                    assert unit in self.wanted and (unit, device) not in self.ready
                case Lost(device):
                    assert device not in self.lost
                    self.lost.add(device)
                    self.ready = {key for key in self.ready if key[1] != device}
                    self.asked = [need for need in self.asked if need.device != device]
                    self.hung += [run for run in self.runs if run.lease.device == device]
                    self.runs = [run for run in self.runs if run.lease.device != device]
                    self.leases = {run.lease.id for run in self.runs}
                case Done(outcomes):
                    for outcome in outcomes:
                        self.end(outcome.job, "ok" if outcome.output else outcome.failure.kind)
                case Wanted(unit):
                    assert unit not in self.wanted or unit not in {each for each, _ in self.ready}
                    self.wanted.add(unit)
                case Unwanted(unit):
                    self.wanted.remove(unit)
                case Dropped(jobs, reason):
                    for each in jobs:
                        assert each.id in self.gone or each.deadline <= self.now
                        self.end(each.id, reason)
                case Failed(jobs, failure):
                    for each in jobs:
                        self.end(each.id, failure.kind)

    def started(self, run):
        assert run.lease.id in self.leases and not any(r.lease.slot == run.lease.slot for r in self.runs)
        assert sum(ref.cost for ref in run.jobs) <= run.lease.max_cost
        assert run.lease.device not in self.lost
        for ref in run.jobs:
            self.tries[ref.id] += 1
            assert self.tries[ref.id] <= run.attempt <= 2, "a job runs too often"
            assert ref.id not in self.gone and self.jobs[ref.id].deadline > self.now
            assert not any(ref.id in names(r.jobs) for r in self.runs)
        if run.generative:
            assert len(run.running) <= self.dispatch.facts("g").max_running
            assert sum(self.jobs[name].kv_tokens for name in run.running) <= self.kv["g"]
        else:
            assert run.jobs
        self.runs.append(run)

    def end(self, name, outcome):
        assert name not in self.ended, f"{name} ended twice"
        self.ended[name] = outcome

    @rule(
        unit=st.sampled_from("abg"),
        cost=st.integers(1, 60),
        service_class=st.sampled_from(ServiceClass),
        patience=st.sampled_from([math.inf, math.inf, 0.5, 3.0]),
        tokens=st.integers(1, 50),
        count=st.integers(1, 4),
    )
    def enqueue(self, unit, cost, service_class, patience, tokens, count):
        jobs = [
            job(
                f"j{next(self.numbers)}",
                cost=cost,
                due=self.now + 1,
                unit=unit,
                arrived=self.now,
                service_class=service_class,
                deadline=self.now + patience,
                kv_tokens=cost + tokens if unit == "g" else 0,
            )
            for _ in range(count)
        ]
        self.jobs |= {each.id: each for each in jobs}
        self.perform(self.dispatch.on_enqueue(jobs, self.now))

    @precondition(lambda self: self.jobs)
    @rule(pick=st.integers(0, 999))
    def hang_up(self, pick):
        self.gone.add(list(self.jobs)[pick % len(self.jobs)])

    @rule(unit=st.sampled_from("abg"), device=st.sampled_from("de"))
    def becomes_ready(self, unit, device):
        if (unit, device) not in self.ready and device not in self.lost:
            self.ready.add((unit, device))
            self.perform(self.dispatch.on_ready(Ready(unit, device, 0.01), self.now))

    @rule(unit=st.sampled_from("ab"), device=st.sampled_from("de"))
    def leaves(self, unit, device):
        self.ready.discard((unit, device))
        self.perform(self.dispatch.on_left(unit, device, self.now))

    @rule(unit=st.sampled_from("ab"))
    def cannot_be_had(self, unit):
        self.perform(self.dispatch.on_unavailable(Unavailable(unit, BROKEN), self.now))

    @precondition(lambda self: self.runs)
    @rule(pick=st.integers(0, 9))
    def loses_a_device(self, pick):
        run = self.runs[pick % len(self.runs)]
        finished = Finished(run.id, run.lease, (), 0.0, lost=True)
        self.perform(self.dispatch.on_finished(finished, self.now))
        self.perform(self.dispatch.on_idle(run.lease.slot, self.now))

    @precondition(lambda self: self.hung)
    @rule()
    def a_runner_of_a_lost_device_answers_after_all(self):
        run = self.hung.pop()
        outcomes = tuple(Outcome(ref.id, output=ref.id) for ref in run.jobs)
        self.perform(self.dispatch.on_finished(Finished(run.id, run.lease, outcomes, 9.0), self.now))
        self.perform(self.dispatch.on_idle(run.lease.slot, self.now))

    @precondition(lambda self: self.asked)
    @rule(answer=st.sampled_from(["grant", "grant", "grant", "least", "deny", "too large"]))
    def answer(self, answer):
        need = self.asked.pop(0)
        if answer == "deny":
            self.ready.discard((need.unit, need.device))
            self.perform(self.dispatch.on_denied(Denied(need.slot, need.unit, need.device, "busy"), self.now))
        elif answer == "too large" and need.min_cost:
            most = max(need.min_cost, 30), max(need.kv_min, 60)
            message = TooLarge(need.slot, need.unit, need.device, *most)
            self.perform(self.dispatch.on_too_large(message, self.now))
        else:
            least = answer == "least"
            cost = max(1, need.min_cost) if least else max(1, need.want_cost)
            self.kv[need.unit] = need.kv_min if least else need.kv_want
            given = lease(need, cost, next(self.numbers), self.kv[need.unit])
            self.leases.add(given.lease.id)
            self.perform(self.dispatch.on_granted(given, self.now))

    @precondition(lambda self: self.runs)
    @rule(pick=st.integers(0, 9), how=st.sampled_from(["all", "some", "oom"]))
    def finish(self, pick, how):
        run = self.runs.pop(pick % len(self.runs))
        self.now += 0.05
        done = names(run.jobs)
        if run.generative:
            done = [name for name in run.running if name not in run.leaving]
            done = done[:1] if how == "some" else done
        exhausted = set(done[:1]) if how == "oom" else set()
        outcomes = tuple(
            Outcome(name, failure=EXHAUSTED) if name in exhausted else Outcome(name, output=name)
            for name in done
        )
        finished = Finished(run.id, run.lease, outcomes, 0.05, out_of_memory=how == "oom")
        self.perform(self.dispatch.on_finished(finished, self.now))
        self.perform(self.dispatch.on_idle(run.lease.slot, self.now))

    @rule(seconds=st.sampled_from([0.1, 1.0, 20.0]))
    def wait(self, seconds):
        self.now += seconds

    @precondition(lambda self: self.dispatch.wake_at <= self.now)
    @rule()
    def wakes(self):
        self.perform(self.dispatch.on_wake(self.now))
        assert self.dispatch.wake_at > self.now

    @invariant()
    def the_books_balance(self):
        if not hasattr(self, "dispatch"):
            return
        waiting = {each.id for lane in self.dispatch.lanes.values() for each in lane}
        waiting |= {each.id for kept in self.dispatch.misfits.apart.values() for each in kept.jobs}
        running = {name for run in self.runs for name in names(run.jobs)}
        running |= {each.id for each in self.dispatch.sequences.get("g", ())}
        assert waiting | running | self.ended.keys() == self.jobs.keys()
        assert not waiting & self.ended.keys() and not waiting & running
        assert self.leases == {run.lease.id for run in self.runs}
        assert {unit for unit, lane in self.dispatch.lanes.items() if len(lane)} <= self.wanted
        if len(self.lost) == 2:
            assert not waiting and not running
        # No idle waiting: a free slot that could run something has asked, or waits for company.
        warm = tuple(sorted(device for unit, device in self.ready if unit == "a" and "a" in self.wanted))
        lane = self.dispatch.lanes.get("a")
        head = lane.head() if lane else None
        too_large = self.dispatch.misfits.left_to_another
        can = {device for device in warm if head is None or not too_large(head, device, warm)}
        if not self.asked and can and self.dispatch.wake_at > self.now:
            free = {s for s, device in self.dispatch.slots.items() if device in can}
            busy = {run.lease.slot for run in self.runs}
            assert free <= busy or self.dispatch.wake_at < math.inf

    def teardown(self):
        if not hasattr(self, "dispatch"):
            return
        for _ in range(500):
            if self.asked:
                self.answer("grant")
            elif self.runs:
                self.finish(0, "all")
            elif self.dispatch.wake_at < math.inf:
                self.now = max(self.now, self.dispatch.wake_at)
                self.wakes()
            elif cold := sorted(self.wanted - {unit for unit, _ in self.ready}):
                self.becomes_ready(cold[0], "e" if "d" in self.lost else "d")
            else:
                break
            self.the_books_balance()
        assert self.ended.keys() == self.jobs.keys() and not self.leases
        assert not self.wanted and not self.dispatch.lanes and not self.dispatch.running
        assert self.dispatch.wake_at == math.inf


TestDispatcher = Dispatcher.TestCase
TestDispatcher.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.reuse, Phase.generate, Phase.shrink),
)
