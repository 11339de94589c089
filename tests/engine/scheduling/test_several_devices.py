"""Work on several devices: spread, too large for one of them, and lost with one of them."""

from __future__ import annotations

import pytest

from engine.conversation import (
    Finished,
    Lost,
    Outcome,
    Progress,
    Ready,
    Release,
    Run,
    Spread,
    TooLarge,
    Wanted,
)
from engine.scheduling.dispatch import Dispatch
from engine.scheduling.effects import Done, Failed
from engine.scheduling.rules import SchedulingRules
from tests.engine.scheduling.jobs import facts, job, names
from tests.engine.scheduling.test_dispatch import lease, needs
from tests.engine.twin import Sim, Twin


def dispatch(slots=1, kinds="ss", **units):
    """Devices `d` and `e`, of kind `s` or other ones."""
    known = {
        "a": facts(device_kinds=("s",)),
        "g": facts("g", device_kinds=("s",), generative=True, max_slots=1),
    } | units
    names = {f"{device}/{n}": device for device in "de" for n in range(slots)}
    return Dispatch(known.__getitem__, SchedulingRules(), names, dict(zip("de", kinds, strict=True)))


def warm(made, unit="a", devices="d", load_seconds=0.1):
    for slot in made.slots:
        made.on_idle(slot, 0.0)
    for device in devices:
        made.on_ready(Ready(unit, device, load_seconds), 0.0)
    return made


def of(kind, effects):
    return [effect for effect in effects if isinstance(effect, kind)]


def start(made, *jobs, now=0.0, number=1):
    """The one batch that these make."""
    (need,) = needs(made.on_enqueue(jobs, now))
    (run,) = of(Run, made.on_granted(lease(need, id=number, kv_tokens=100), now))
    return run


def lose(made, run, now=1.0, outcomes=()):
    return made.on_finished(Finished(run.id, run.lease, outcomes, 0.0, lost=True), now)


def test_a_lane_is_served_by_every_device_that_has_it():
    made = warm(dispatch(), devices="de")

    asked = needs(made.on_enqueue([job(cost=2000) for _ in range(9)], 0.0))

    assert [need.device for need in asked] == ["d", "e"]


@pytest.mark.parametrize(
    ("cost", "load_seconds", "kinds", "max_slots", "told"),
    [
        (20_000, 0.1, "ss", 9, True),
        (400, 0.1, "ss", 9, False),  # gone before half its target
        (20_000, 11.0, "ss", 9, False),  # gone before it could be loaded twice
        (20_000, 0.1, "sc", 9, False),  # of another kind
        (20_000, 0.1, "ss", 1, False),  # it runs in as many slots as it may
    ],
)
def test_a_backlog_that_pays_for_a_load_is_spread_to_an_idle_neighbour_once(
    cost, load_seconds, kinds, max_slots, told
):
    unit = facts(device_kinds=("s", "c"), max_slots=max_slots)
    made = warm(dispatch(kinds=kinds, a=unit), load_seconds=load_seconds)
    made.sizing.observe("a", "d", 100, 0.1)
    made.sizing.observe("a", "d", 2000, 2.0)

    effects = made.on_enqueue([job(cost=cost // 10, due=99.0) for _ in range(10)], 0.0)

    assert of(Spread, effects) == ([Spread("a", "e")] if told else [])
    if told:
        assert of(Spread, made.on_enqueue([job(cost=5000)], 0.1)) == []


def test_it_is_said_again_when_the_neighbour_had_it_and_lost_it():
    made = warm(dispatch())
    made.sizing.observe("a", "d", 2000, 2.0)
    made.on_enqueue([job(cost=2000, due=99.0) for _ in range(10)], 0.0)
    (need,) = needs(made.on_ready(Ready("a", "e", 0.1), 0.1))
    made.on_granted(lease(need), 0.1)

    made.on_left("a", "e", 0.2)

    assert of(Spread, made.on_idle("e/0", 0.3)) == [Spread("a", "e")]


def test_with_half_the_backlog_on_a_second_device_it_is_gone_in_half_the_time():
    made = warm(dispatch(slots=2))
    for device in "de":
        made.sizing.observe("a", device, 2000, 1.0)
    made.on_enqueue([job(cost=2000) for _ in range(8)], 0.0)
    alone = made.predicted_wait("a")
    made.on_ready(Ready("a", "e"), 0.0)

    assert made.predicted_wait("a") == pytest.approx(alone / 2)


def test_what_is_too_large_for_one_device_waits_for_the_other_which_has_it():
    made = warm(dispatch(), devices="de")
    other = start(made, job(cost=2000))
    (need,) = needs(made.on_enqueue([job("large", cost=500, due=1.0), job("small", cost=5)], 0.1))
    assert need.device != other.lease.device

    effects = made.on_too_large(TooLarge(need.slot, "a", need.device, 100, 1 << 62), 0.2)
    made.on_finished(Finished(other.id, other.lease, (), 1.0), 1.0)
    asked = needs(made.on_idle(other.lease.slot, 1.0))

    assert effects == []  # nothing failed, and the first to go is not asked for there again
    assert (asked[0].device, asked[0].min_cost) == (other.lease.device, 500)


def too_large(made):
    (need,) = needs(made.on_enqueue([job("large", cost=500, due=1.0), job("small", cost=5)], 0.0))
    return made.on_too_large(TooLarge(need.slot, "a", "d", 100, 1 << 62), 0.0)


def test_what_only_another_device_could_run_waits_for_its_unit_to_come_there():
    made = warm(dispatch())

    effects = too_large(made)

    assert of(Spread, effects) == [Spread("a", "e")] and not of(Failed, effects)
    assert [(need.device, need.min_cost) for need in needs(effects)] == [("d", 5)]  # the others go on
    came = needs(made.on_ready(Ready("a", "e"), 1.0))
    assert [(need.device, need.min_cost) for need in came] == [("e", 500)]


def test_when_it_does_not_come_there_the_job_fails_alone():
    made = warm(dispatch())
    too_large(made)

    (failed,) = of(Failed, made.on_wake(made.wake_at))

    assert (names(failed.jobs), failed.failure.kind) == (["large"], "InputTooLong")
    assert "d can ever free" in failed.failure.message


def test_where_pins_leave_no_room_for_any_batch_the_input_is_not_to_blame():
    made = warm(dispatch())
    (need,) = needs(made.on_enqueue([job("short", cost=1)], 0.0))
    made.on_too_large(TooLarge(need.slot, "a", "d", 0, 1 << 62), 0.0)

    (failed,) = of(Failed, made.on_wake(made.wake_at))

    assert failed.failure.kind == "NoRoom" and "Unpin something" in failed.failure.message


def test_what_fits_no_device_fails_at_once():
    made = warm(dispatch(), devices="de")
    (need,) = needs(made.on_enqueue([job("large", cost=500)], 0.0))
    (other,) = needs(made.on_too_large(TooLarge(need.slot, "a", need.device, 100, 1 << 62), 0.0))

    effects = made.on_too_large(TooLarge(other.slot, "a", other.device, 200, 1 << 62), 0.0)

    (failed,) = of(Failed, effects)
    assert {need.device, other.device} == {"d", "e"} and names(failed.jobs) == ["large"]


def test_work_of_a_lost_device_goes_back_once_and_runs_elsewhere():
    made = warm(dispatch(), devices="de")
    run = start(made, job("done", cost=5), job("not", cost=5))

    effects = lose(made, run, outcomes=(Outcome("done", output="done"),))

    assert effects[0] == Lost(run.lease.device, effects[0].reason)
    assert of(Done, effects) == [Done((Outcome("done", output="done"),))]
    assert not of(Release, effects) and not of(Failed, effects)
    (need,) = needs(effects)
    (again,) = of(Run, made.on_granted(lease(need), 1.0))
    assert need.device != run.lease.device
    assert (names(again.jobs), again.attempt) == (["not"], 2)


def test_nothing_is_heard_of_a_lost_device_any_more():
    made = warm(dispatch(slots=2), devices="de")
    runs = [start(made, job(cost=2000), number=number, now=number / 100) for number in range(4)]
    first, second = [run for run in runs if run.lease.device == runs[0].lease.device]
    lost = lose(made, first)

    assert len(of(Lost, lost)) == 1
    assert lose(made, second) == []
    late = Finished(second.id, second.lease, (Outcome(second.jobs[0].id, output="x"),), 1.0)
    assert made.on_finished(late, 2.0) == []
    assert made.on_idle(first.lease.slot, 2.0) == []
    assert made.on_ready(Ready("a", first.lease.device), 2.0) == []
    assert len(made.lanes["a"]) == 2


def test_a_unit_that_came_to_a_device_just_before_it_was_lost_is_not_there():
    made = warm(dispatch())
    made.sizing.observe("a", "d", 100, 0.1)
    lose(made, start(made, job()))

    made.on_ready(Ready("a", "d"), 1.0)

    assert made.refusal([job(deadline=5.0)], 1.0) is None
    assert needs(made.on_ready(Ready("a", "e"), 2.0))[0].device == "e"


def test_no_backlog_is_spread_to_a_lost_device():
    made = warm(dispatch(), devices="de")
    made.sizing.observe("a", "d", 2000, 2.0)
    made.sizing.observe("a", "e", 2000, 2.0)
    run = start(made, job(cost=2000))
    made.on_enqueue([job(cost=2000, due=99.0) for _ in range(20)], 0.1)
    lose(made, run)

    assert of(Spread, made.on_idle(run.lease.slot, 2.0)) == []


def test_an_answer_for_a_slot_of_a_lost_device_starts_nothing():
    made = warm(dispatch(slots=2), devices="d")
    run = start(made, job(cost=2000))
    (need,) = needs(made.on_enqueue([job("x", cost=2000)], 0.1))
    lose(made, run)

    assert made.on_granted(lease(need, id=9), 1.0) == []
    assert len(made.lanes["a"]) == 2


def test_a_job_that_was_lost_twice_fails_and_may_be_sent_again():
    made = warm(dispatch(), devices="de")
    run = start(made, job("x"))
    (need,) = needs(lose(made, run))
    (again,) = of(Run, made.on_granted(lease(need, id=2), 1.0))
    made.on_ready(Ready("a", "e"), 1.0)

    (failed,) = of(Failed, lose(made, again, 2.0))

    assert (names(failed.jobs), failed.failure.kind) == (["x"], "RunnerCrashed")
    assert failed.failure.retry_after is not None


@pytest.mark.parametrize("heard", [True, False])
def test_a_sequence_goes_back_only_when_nothing_was_heard_of_it(heard):
    made = warm(dispatch(), "g", "de")
    run = start(made, job("x", unit="g", kv_tokens=40))
    progress = (Progress("x", "word", 1),) if heard else ()
    made.on_finished(Finished(run.id, run.lease, (), 0.01, progress), 0.1)
    (need,) = needs(made.on_idle(run.lease.slot, 0.1))
    (quantum,) = of(Run, made.on_granted(lease(need, id=2, kv_tokens=40), 0.1))

    effects = lose(made, quantum)

    assert [names(failed.jobs) for failed in of(Failed, effects)] == ([["x"]] if heard else [])
    assert bool(needs(effects)) != heard


def test_without_any_device_everything_that_waits_or_comes_fails_at_once():
    made = warm(dispatch(slots=1), devices="d")
    made.on_enqueue([job("cold", unit="g", kv_tokens=9)], 0.0)
    run = start(made, job("x"))
    made.on_enqueue([job("waits")], 0.0)
    lost = lose(made, run)
    assert not of(Failed, lost)  # the other is there still
    (need,) = needs(made.on_ready(Ready("a", "e"), 1.0))
    (last,) = of(Run, made.on_granted(lease(need, id=3), 1.0))

    effects = lose(made, last, 2.0)
    new = made.on_enqueue([job("new")], 3.0)

    failed = {name: f.failure for f in of(Failed, effects) for name in names(f.jobs)}
    assert failed.keys() == {"cold", "x", "waits"}
    assert {(f.kind, f.retry_after is not None) for f in failed.values()} == {("RunnerCrashed", True)}
    assert names(of(Failed, new)[0].jobs) == ["new"] and not needs(new) and not of(Wanted, new)
    assert not made.lanes and made.wake_at == float("inf")


def test_a_unit_that_only_the_lost_device_could_run_fails_and_the_others_go_on():
    made = warm(dispatch(kinds="sc", b=facts("b", device_kinds=("s", "c"))), devices="d")
    made.on_enqueue([job("b", unit="b")], 0.0)
    run = start(made, job("x"))

    effects = lose(made, run)

    (failed,) = of(Failed, effects)
    assert names(failed.jobs) == ["x"] and "d failed" in failed.failure.message
    assert len(made.lanes["b"]) == 1


def test_two_devices_share_the_work_of_one_model_and_one_takes_over_when_the_other_fails():
    twin = Twin(Sim("a", per_batch=0.05), devices=("a", "b"), memory=1000)
    twin.clients("a", 60, 20.0, cost=400)
    twin.run(8.0)
    both = {ran.slot for ran in twin.ran if ran.began > 5}
    twin.lose("a")
    twin.run()

    assert both == {"a/0", "b/0"}
    assert {ran.slot for ran in twin.ran if ran.began > 8} == {"b/0"}
    assert all(twin.outcome(job) == "ok" for job in twin.jobs)
    twin.check_at_rest()


def test_the_only_device_fails_and_nobody_hangs():
    twin = Twin(Sim("a", per_batch=0.05), Sim("b", load_seconds=5.0))
    twin.clients("a", 5, 1.0)
    twin.submit("b")
    twin.run(2.0)
    fails = [twin.submit("a", cost=2000) for _ in range(3)] + [twin.submit("b")]
    twin.run(2.001)
    twin.lose("a")
    twin.run(3.0)
    fails.append(twin.submit("a"))
    twin.run()

    assert {twin.outcome(job) for job in fails} == {"RunnerCrashed"}
    twin.check_at_rest()
