"""Jobs that are read with adapters: those whose adapter is nowhere wait apart, the others share a lane."""

from __future__ import annotations

from engine.conversation import (
    Denied,
    Finished,
    Granted,
    Lease,
    Outcome,
    Ready,
    Release,
    Spread,
    TooLarge,
    Unavailable,
    Unwanted,
    Wanted,
)
from engine.errors import Failure
from engine.scheduling.effects import Failed
from tests.engine.scheduling.jobs import INTERACTIVE, STANDARD, facts, job, names
from tests.engine.scheduling.test_dispatch import dispatch, needs

BROKEN = Failure("LoadFailed", "no such weights")


def made(slots=1, devices=("d",), **given):
    """`a` and its adapters `a:p` and `a:q`; `a` is ready."""
    adapters = {f"a:{name}": facts(f"a:{name}", adapts="a") for name in "pq"}
    at = dispatch(slots, devices, a=facts(**given), **adapters)
    for slot in at.slots:
        at.on_idle(slot, 0.0)
    at.on_ready(Ready("a", "d"), 0.0)
    return at


def read(name, *adapters, **fields):
    return job(name, adapters=tuple(f"a:{each}" for each in adapters), **fields)


def came(at, adapter, device="d", now=0.0):
    return at.on_ready(Ready(f"a:{adapter}", device), now)


def granted(need, *adapters, max_cost=1 << 40):
    named = tuple(f"a:{each}" for each in adapters)
    return Granted(Lease(1, need.unit, need.device, need.slot, max_cost, 0, named), need.kv_want)


def run_of(effects):
    return names(effects[0].jobs)


def told(effects, kind):
    return [effect.unit for effect in effects if isinstance(effect, kind)]


def test_a_cold_adapter_is_wanted_with_its_base_and_holds_up_nobody_else():
    at = made()

    cold = at.on_enqueue([read("cold", "p", due=1.0, service_class=INTERACTIVE)], 0.0)
    (need,) = needs(at.on_enqueue([job("plain", due=9.0)], 5.0))

    assert cold == [Wanted("a", INTERACTIVE, 1.0, ("d",)), Wanted("a:p", INTERACTIVE, 1.0)]
    assert (need.unit, need.needed, need.adapters) == ("a", (), ())
    assert run_of(at.on_granted(granted(need), 0.0)) == ["plain"]


def test_when_it_has_come_its_jobs_go_with_all_others_in_one_batch():
    at = made()
    at.on_enqueue([read("one", "p", due=1.0)], 0.0)
    came(at, "q")

    (need,) = needs(came(at, "p"))
    at.on_enqueue([read("two", "q", due=0.5), job("plain")], 5.0)
    at.on_denied(Denied(need.slot, "a", "d", "busy"), 5.0)
    (more,) = needs(at.on_ready(Ready("a", "d"), 9.0))

    assert (need.needed, need.adapters) == (("a:p",), ("a:p",))
    assert (more.needed, more.adapters) == (("a:q",), ("a:p", "a:q"))
    assert run_of(at.on_granted(granted(more, "p", "q"), 0.0)) == ["two", "one", "plain"]


def test_what_came_since_a_lease_was_asked_for_stays_if_the_lease_does_not_name_its_adapter():
    at = made()
    came(at, "p")
    (need,) = needs(at.on_enqueue([job("plain")], 0.0))
    at.on_enqueue([read("late", "p", due=0.1)], 0.0)

    effects = at.on_granted(granted(need), 0.0)

    assert run_of(effects) == ["plain"] and "a:p" not in told(effects, Unwanted)
    assert names(at.lanes["a"]) == ["late"]


def test_an_adapter_is_wanted_as_long_as_work_waits_for_it_though_it_is_there():
    at = made()
    came(at, "p")

    first = at.on_enqueue([read("x", "p")], 0.0)
    (need,) = needs(first)
    gone = at.on_granted(granted(need, "p"), 0.0)

    assert told(first, Wanted) == ["a", "a:p"] and told(gone, Unwanted) == ["a", "a:p"]
    assert not at.lanes


def test_what_its_adapter_leaves_behind_waits_for_it_apart():
    at = made()
    came(at, "p")
    (need,) = needs(at.on_enqueue([read("x", "p", due=1.0), job("plain", due=2.0)], 0.0))

    at.on_left("a:p", "d", 0.0)
    run = at.on_granted(granted(need), 0.0)

    assert run_of(run) == ["plain"] and names(at.lanes["a:p"]) == ["x"]
    assert told(run, Unwanted) == []


def test_an_adapter_that_cannot_be_had_fails_its_own_jobs_and_a_base_all():
    at = made()
    at.on_enqueue([read("p", "p"), read("q", "q")], 0.0)

    (first, *_) = at.on_unavailable(Unavailable("a:p", BROKEN), 0.0)
    (second, *rest) = at.on_unavailable(Unavailable("a", BROKEN), 0.0)

    assert isinstance(first, Failed) and names(first.jobs) == ["p"]
    assert isinstance(second, Failed) and names(second.jobs) == ["q"]
    assert {*told(rest, Unwanted)} == {"a", "a:q"} and not at.lanes


def test_a_job_of_two_adapters_is_as_urgent_for_both():
    at = made()

    first = at.on_enqueue([read("both", "p", "q", due=1.0, service_class=INTERACTIVE)], 0.0)

    assert first[1:] == [Wanted("a:p", INTERACTIVE, 1.0), Wanted("a:q", INTERACTIVE, 1.0)]


def test_a_job_of_two_adapters_fails_with_either_wherever_it_waits():
    at = made()
    at.on_enqueue([read("both", "p", "q"), read("p", "p")], 0.0)

    first = at.on_unavailable(Unavailable("a:q", BROKEN), 0.0)
    last = at.on_unavailable(Unavailable("a:p", BROKEN), 0.0)

    failed = [names(e.jobs) for e in [*first, *last] if isinstance(e, Failed)]
    assert failed == [["both"], ["p"]]
    assert told(first, Unwanted) == ["a:q"] and {*told(last, Unwanted)} == {"a", "a:p"} and not at.lanes


def test_a_job_of_two_adapters_goes_when_both_are_on_one_device():
    at = made(devices=("d", "e"))
    at.on_ready(Ready("a", "e"), 0.0)
    first = at.on_enqueue([read("x", "p", "q")], 0.0)

    apart = [came(at, "p", "d"), came(at, "q", "e")]
    (need,) = needs(came(at, "q", "d"))

    assert told(first, Wanted) == ["a", "a:p", "a:q"]
    assert [needs(effects) for effects in apart] == [[], []]
    assert [(s.unit, s.device) for s in apart[1] if isinstance(s, Spread)] == [("a:q", "d")]
    assert (need.device, need.needed) == ("d", ("a:p", "a:q"))


def test_a_device_without_the_adapter_takes_the_other_jobs():
    at = made(devices=("d", "e"))
    at.on_ready(Ready("a", "e"), 0.0)
    came(at, "p", "d")
    jobs = [read("x", "p", due=1.0, cost=30), job("plain", due=2.0, cost=20)]
    (first,) = needs(at.on_enqueue(jobs, 0.0))

    (second,) = needs(at.on_denied(Denied("d/0", "a", "d", "busy"), 0.0))

    assert (first.device, first.min_cost, first.adapters) == ("d", 30, ("a:p",))
    assert (second.device, second.min_cost, second.adapters) == ("e", 20, ())
    assert run_of(at.on_granted(granted(second), 0.0)) == ["plain"]


def test_what_is_too_large_beside_its_adapter_is_not_so_without_it():
    at = made()
    came(at, "p")
    (need,) = needs(at.on_enqueue([read("x", "p", cost=50, due=1.0), job("plain", cost=50)], 0.0))

    effects = at.on_too_large(TooLarge(need.slot, "a", "d", 40, 1 << 62), 0.0)

    (failed,) = [effect for effect in effects if isinstance(effect, Failed)]
    assert names(failed.jobs) == ["x"] and needs(effects)[0].needed == ()


def test_sequences_name_their_adapters_until_they_end():
    at = made(generative=True, max_slots=1)
    came(at, "p")
    (need,) = needs(at.on_enqueue([read("x", "p", kv_tokens=20)], 0.0))
    first = at.on_granted(granted(need, "p"), 0.0)[0]
    effects = at.on_finished(Finished(first.id, first.lease, (), 0.05), 0.05)
    (again,) = needs(at.on_idle("d/0", 0.05))
    second = at.on_granted(granted(again, "p"), 0.1)[0]
    last = at.on_finished(Finished(second.id, second.lease, (Outcome("x", "x"),), 0.05), 0.15)

    releases = [e.adapters for e in [*effects, *last] if isinstance(e, Release)]
    assert releases == [("a:p",), ()] and again.adapters == ("a:p",)
    assert "a:p" not in told(effects, Unwanted) and "a:p" in told(last, Unwanted)


def test_what_waits_for_adapters_counts_at_the_gate():
    at = made()
    at.on_enqueue([read(f"{n}", "p") for n in range(at.rules.max_model_jobs)], 0.0)

    assert at.refusal([job("one more")], 0.0) is not None
    assert at.refusal([job("other", unit="g")], 0.0) is None


def test_those_that_nobody_waits_for_leave_the_lane_of_their_adapter():
    at = made()
    at.wanted = lambda each: each.id != "x"
    at.on_enqueue([read("x", "p", service_class=STANDARD), read("y", "p")], 0.0)

    at.on_given_up(["a"], 0.0)

    assert names(at.lanes["a:p"]) == ["y"]
