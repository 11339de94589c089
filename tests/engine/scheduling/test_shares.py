"""Who gets how much of the card and how soon: both cores together, with traffic that saturates it."""

from __future__ import annotations

import random

import pytest

from engine.requests import ServiceClass
from tests.engine.twin import Sim, Twin

INTERACTIVE, STANDARD, BACKGROUND = ServiceClass


def saturate(twin, unit, jobs, until, cost=48, service_class=STANDARD, every=0.02):
    """There are always so many jobs in its lane."""

    def top_up():
        lane = twin.dispatch.lanes.get(unit)
        for _ in range(jobs - (len(lane) if lane else 0)):
            twin.submit(unit, cost, service_class)
        if twin.now + every < until:
            twin.at(twin.now + every, top_up)

    twin.at(twin.now, top_up)


def trickle(twin, unit, per_second, until, rng, cost=10, service_class=STANDARD):
    """Poisson arrivals. The list is filled with their jobs as they come."""
    jobs, when = [], twin.now
    while (when := when + rng.expovariate(per_second)) < until:
        twin.at(when, lambda: jobs.append(twin.submit(unit, cost, service_class)))
    return jobs


def p99(twin, jobs):
    latencies = sorted(twin.latency(job) for job in jobs)
    return latencies[int(0.99 * len(latencies))]


def warm(*sims, **fields):
    """A twin where everything is loaded and something has run."""
    twin = Twin(*sims, **fields)
    for sim in sims:
        for cost in (1, 64, 2048):
            twin.submit(sim.unit, cost, kv_tokens=0)
            twin.run(twin.now + 2.0)
    twin.ran.clear()
    return twin


def test_a_long_job_among_saturating_short_ones_runs_within_three_batch_times():
    twin = warm(Sim("a"))
    saturate(twin, "a", 60, twin.now + 10)
    twin.run(twin.now + 5)
    batch = max(ran.seconds for ran in twin.ran)
    began, long = twin.now, twin.submit("a", 8000)
    twin.run()

    assert twin.started[long] - began <= 3 * batch
    twin.check_at_rest()


def test_models_that_trickle_beside_it_wait_no_longer_than_three_batch_times():
    twin, rng = warm(Sim("a"), Sim("b"), Sim("c")), random.Random(1)
    end = twin.now + 60
    saturate(twin, "a", 60, end)
    trickling = [trickle(twin, unit, 4, end, rng) for unit in "bc"]
    twin.run(twin.now + 5)
    batch = max(ran.seconds for ran in twin.ran)
    twin.submit("a", 8000)
    twin.run()

    for jobs in trickling:
        assert len(jobs) > 100 and p99(twin, jobs) <= 3 * batch


@pytest.mark.parametrize("callers", [100, 175, 200, 205, 230])
def test_no_backlog_of_one_model_keeps_those_that_trickle_out(callers):
    """With some backlogs its oldest job can always only just be in time: that must not win each time."""
    twin, rng = warm(Sim("a", per_cost=0.0002), Sim("b"), Sim("c")), random.Random(1)
    end = twin.now + 15
    twin.clients("a", callers, end, cost=48)
    trickling = [trickle(twin, unit, 6, end, rng) for unit in "bc"]
    twin.run()

    batch = max(ran.seconds for ran in twin.batches("a"))
    for jobs in trickling:
        assert p99(twin, jobs) <= 3 * batch


@pytest.mark.parametrize("slots", [1, 2, 3])
def test_three_to_one_weights_give_three_to_one_device_seconds(slots):
    twin = warm(Sim("a", facts={"weight": 3.0}), Sim("b"), slots=slots)
    end = twin.now + 80 / slots
    saturate(twin, "a", 300, end)
    saturate(twin, "b", 300, end)
    twin.run(end)

    assert len(twin.ran) > 300
    for begin in range(20, len(twin.ran) - 100):
        window = twin.ran[begin : begin + 100]
        mine = sum(ran.seconds for ran in window if ran.unit == "a")
        assert mine / sum(ran.seconds for ran in window) == pytest.approx(0.75, rel=0.05)


@pytest.mark.parametrize("whose", ["b", "i"], ids=["another model's", "its own model's"])
def test_interactive_work_waits_for_one_bounded_quantum_of_the_background_at_most(whose):
    def run(saturated):
        twin, rng = warm(Sim("i", per_batch=0.01), Sim("b")), random.Random(7)
        twin.submit("i", 1, INTERACTIVE)
        end = twin.now + 30
        jobs = trickle(twin, "i", 30, end, rng, cost=1, service_class=INTERACTIVE)
        if saturated:
            saturate(twin, whose, 300, end, service_class=BACKGROUND)
        twin.run(end)
        done = [job for job in jobs if twin.outcomes[job]]
        assert len(done) > len(jobs) - 3
        return p99(twin, done), twin

    alone, _ = run(False)
    beside, twin = run(True)

    quantum = twin.dispatch.rules.targets[INTERACTIVE] / 8
    assert max(ran.seconds for ran in twin.batches(whose)) <= quantum
    assert beside <= alone + quantum
    share = sum(ran.seconds for ran in twin.batches(whose)) / 30
    assert share > 0.5  # and the background takes what is left


def test_small_batches_are_learned_not_to_be_worth_it_while_interactive_work_is_about():
    """A batch that costs 20 ms before its first job: one job at a time would be all that is ever known."""
    twin = Twin(Sim("b", per_batch=0.02, per_cost=1e-5), Sim("i"))
    twin.submit("b", 10, BACKGROUND)
    twin.submit("i", 1, INTERACTIVE)
    twin.run(1)
    trickle(twin, "i", 2, 11.0, random.Random(1), cost=1, service_class=INTERACTIVE)
    saturate(twin, "b", 100, 11.0, cost=10, service_class=BACKGROUND)
    twin.run(11.0)

    late = [ran for ran in twin.batches("b") if ran.began > 3]
    assert max(ran.seconds for ran in late) <= 0.025
    assert sum(len(ran.jobs) for ran in late) / len(late) > 20


@pytest.mark.parametrize("slots", [1, 2, 4])
@pytest.mark.parametrize("per_batch", [0.006, 0.02])
def test_a_burst_of_short_requests_at_an_idle_device_is_a_batch_a_slot_and_one_more(slots, per_batch):
    twin, rng = warm(Sim("a", per_batch=per_batch, per_cost=1e-5), slots=slots), random.Random(3)
    for _ in range(64):
        twin.at(twin.now + rng.random() * 0.005, lambda: twin.submit("a", rng.randint(1, 16)))
    twin.run()

    assert len(twin.ran) <= slots + 1


def test_a_free_slot_runs_what_waits_at_once():
    twin = warm(Sim("a"), slots=2)
    jobs = [twin.submit("a", 2000), twin.submit("a", 2000)]
    twin.run()

    assert [twin.started[job] for job in jobs] == [twin.jobs[job].arrived for job in jobs]


@pytest.mark.parametrize("load_seconds", [0.05, 0.5, 6.0, 20.0])
def test_models_that_do_not_fit_together_take_turns_and_all_get_on(load_seconds):
    sims = [Sim(unit, weights=600, load_seconds=load_seconds, per_batch=0.05) for unit in "ab"]
    twin = Twin(*sims, memory=1000)
    end = 20 * load_seconds + 10
    for unit in "ab":
        twin.clients(unit, 4, end)
    twin.run()

    seconds = {unit: sum(ran.seconds for ran in twin.batches(unit)) for unit in "ab"}
    loads = sum(change.event == "loaded" for change in twin.changes)
    assert min(seconds.values()) > 0.3 * sum(seconds.values())
    turn = load_seconds + min(twin.custody.rules.min_residency, 8 * load_seconds)
    assert loads <= 2 + end / turn
    assert sum(seconds.values()) > 0.8 * (1 - load_seconds / turn) * end
    twin.check_at_rest()


def test_a_cold_model_starts_loading_in_time_while_another_is_busy():
    twin = Twin(Sim("a", weights=600, per_batch=0.05), Sim("b", weights=600), memory=1000)
    twin.clients("a", 8, 30.0)
    twin.run(5)
    job = twin.submit("b")
    twin.run(5 + twin.custody.rules.max_cold_wait + 1)

    assert twin.outcome(job) == "ok"


def test_a_large_model_is_not_kept_out_by_small_ones_that_come_and_go():
    small = [Sim(unit, weights=300, load_seconds=0.1) for unit in "abc"]
    twin = Twin(*small, Sim("large", weights=900, load_seconds=0.5), memory=1000)
    for unit in "abc":
        twin.clients(unit, 2, 40.0)
    twin.run(5)
    job = twin.submit("large")
    twin.run(5 + 2 * twin.custody.rules.max_cold_wait)

    assert twin.outcome(job) == "ok"
    twin.run()
    twin.check_at_rest()


def test_two_models_whose_batches_do_not_fit_beside_each_other_both_get_on():
    """Each fits with room for a small batch only: a large one needs the other to leave."""
    sims = [Sim(unit, weights=450, workspace_per_cost=1.0, load_seconds=1.0) for unit in "ab"]
    for sim in sims:
        sim.facts = {"max_batch_cost": 80}
    twin = Twin(*sims, memory=1000)
    for unit in "ab":
        twin.clients(unit, 2, 60.0, cost=300)
    twin.run()

    done = [len(twin.batches(unit)) for unit in "ab"]
    assert min(done) > 0.2 * sum(done)
    twin.check_at_rest()


def test_a_generating_model_makes_room_when_its_sequences_end_and_takes_no_more_till_then():
    writer = Sim("g", weights=600, kv_per_token=1, per_batch=0.02, facts={"generative": True, "max_slots": 1})
    twin = Twin(writer, Sim("b", weights=700), memory=1300)
    twin.clients("g", 2, 30.0, cost=5, kv_tokens=105)
    twin.run(3)
    job = twin.submit("b")
    twin.run(3 + twin.custody.rules.max_cold_wait + 105 * 0.03 + 1)

    assert twin.outcome(job) == "ok"
    twin.run()
    twin.check_at_rest()


def test_those_who_never_asked_wait_for_nobody_who_is_leaving():
    """`c` has room for its batch while `a` finishes a long one and makes place for `b`."""
    twin = Twin(Sim("a", weights=400, per_batch=20.0), Sim("b", weights=600), Sim("c", weights=300), slots=2)
    twin.held.ledgers["a"].total_bytes = 1000
    twin.submit("a")
    twin.submit("c")
    twin.run(1)
    twin.submit("b")
    twin.run(8)
    assert twin.held.residents["a", "a"].yielding
    job = twin.submit("c")
    twin.run(9)

    assert twin.outcome(job) == "ok"
