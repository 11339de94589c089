"""When a free slot waits for company, and when it does not."""

from __future__ import annotations

import math
import random

import pytest

from engine.scheduling.rules import SchedulingRules
from engine.scheduling.sizing import Sizing
from engine.scheduling.window import LONGEST_SILENCE, SPAN, Window
from tests.engine.scheduling.jobs import INTERACTIVE, facts, job, lane
from tests.engine.twin import Sim, Twin


def window(share=0.1, run=0.002):
    """A unit `a` whose batches take `run` seconds, and a little more when they are large."""
    made = Window(Sizing(SchedulingRules(window_share=share)))
    for cost in (1, 64, 2048):
        made.sizing.observe("a", "d", cost, run + cost * 1e-6)
    return made


def arrivals(made, count, gap=1e-4, cost=8, now=0.0):
    for n in range(count):
        made.arrived("a", cost, now + n * gap)
    return now + (count - 1) * gap


def until(made, now, waiting=None, slots=1, **fields):
    here = waiting or lane(*[job(cost=8, arrived=now, due=now + 2) for _ in range(3)])
    return made.until(facts(**fields), here, "d", slots, now)


def test_the_first_request_never_waits():
    made = window()

    assert until(made, arrivals(made, 1)) == -math.inf


@pytest.mark.parametrize("count", [2, 3, 10, 40])
def test_a_burst_waits_until_it_stops(count):
    made = window()
    now = arrivals(made, count)

    assert now + 3e-4 < until(made, now) <= now + LONGEST_SILENCE
    assert until(made, until(made, now)) == -math.inf


def test_what_goes_on_for_longer_than_a_burst_is_traffic():
    made = window()
    now = arrivals(made, 100)

    assert now > SPAN and until(made, now) == -math.inf
    now = arrivals(made, 10, now=now + 0.002)  # and after a little silence it is the usual traffic
    assert until(made, now) == -math.inf
    now = arrivals(made, 10, now=now + 2.0)
    assert until(made, now) > now


def test_callers_who_send_their_next_request_after_an_answer_are_no_burst():
    made, now = window(), 0.0
    for _ in range(50):
        now += 0.0009
        made.answered("a", 1, now)
        made.arrived("a", 8, now)
        assert until(made, now) == -math.inf


def test_requests_that_slots_can_serve_one_by_one_wait_for_nobody():
    made = window(run=0.0001)
    now = arrivals(made, 3, gap=4e-4)

    assert until(made, now, slots=1) == -math.inf
    slower = window(run=0.002)
    assert until(slower, arrivals(slower, 3, gap=4e-4), slots=1) > now
    assert until(slower, now, slots=32) == -math.inf


@pytest.mark.parametrize(
    ("waiting", "limits"),
    [
        (lane(*[job(cost=8, max_batch_jobs=3) for _ in range(3)]), {}),
        (lane(*[job(cost=8, max_batch_cost=24) for _ in range(3)]), {}),
        (lane(*[job(cost=8) for _ in range(3)]), {"max_batch_cost": 24}),
    ],
)
def test_a_full_batch_goes(waiting, limits):
    made = window()
    now = arrivals(made, 3)

    assert until(made, now, waiting, **limits) == -math.inf


def test_who_has_waited_as_long_as_a_window_may_waits_no_longer():
    made = window()
    now = arrivals(made, 3)

    old = lane(job(arrived=now - 0.0048), job(arrived=now))
    assert until(made, now, old) == pytest.approx(now + 0.0002)
    short, now = window(share=0.001), arrivals(made, 3)
    arrivals(short, 3)
    interactive = lane(job(arrived=now, service_class=INTERACTIVE), job(arrived=now))
    assert until(short, now, interactive) == pytest.approx(now + 0.0002)  # a thousandth of its target
    own = {"targets": {INTERACTIVE: 0.1}}
    assert until(short, now, interactive, **own) == pytest.approx(now + 0.0001)
    never = window(share=0.0)
    assert until(never, arrivals(never, 3)) <= now


def test_nobody_is_late_for_a_window():
    made = window()
    now = arrivals(made, 3)
    run = made.sizing.predicted("a", "d", 16)

    close = lane(job(cost=8, due=now + run + 0.0001), job(cost=8))
    assert until(made, now, close) == pytest.approx(now + 0.0001)
    assert until(made, now, lane(job(cost=8, due=now + run - 1e-9), job(cost=8))) <= now


def test_windows_that_were_in_vain_ask_for_more_before_the_next():
    made, now, held = window(), 0.0, 0
    for _ in range(10):
        now = arrivals(made, 2, now=now + 1.0)
        if until(made, now) > now:
            held += 1
            made.waits("a")
            made.over("a")

    assert held == 1
    now = arrivals(made, 5, now=now + 1.0)
    assert until(made, now) > now
    made.waits("a")
    arrivals(made, 1, now=now + 1e-4)  # not in vain
    made.over("a")
    now = arrivals(made, 2, now=now + 1.0)
    assert until(made, now) > now


def warm(share=0.1, slots=1, per_batch=0.002):
    """A twin of one model that has run before; books are not checked, for speed."""
    rules = SchedulingRules(window_share=share, max_waiting_jobs=10**6)
    twin = Twin(Sim("a", per_batch=per_batch, per_cost=1e-5), slots=slots, rules=rules)
    for cost in (1, 64, 2048):
        twin.submit("a", cost)
        twin.run(twin.now + 2.0)
    twin.ran.clear()
    return twin


@pytest.mark.parametrize("seed", [None, *range(8)])
@pytest.mark.parametrize("slots", [1, 2, 4])
@pytest.mark.parametrize("per_batch", [0.0005, 0.002, 0.008])
def test_64_short_requests_within_5_ms_at_an_idle_device_are_a_batch_a_slot_and_one_more(
    per_batch, slots, seed
):
    twin, rng = warm(slots=slots, per_batch=per_batch), random.Random(seed)
    for n in range(64):
        after = n * 0.005 / 64 if seed is None else rng.random() * 0.005
        twin.at(twin.now + after, lambda: twin.submit("a", rng.randint(1, 16)))
    twin.run()

    assert len(twin.ran) <= slots + 1
    assert sum(len(ran.jobs) for ran in twin.ran) == 64


@pytest.mark.parametrize("slots", [1, 2, 4])
def test_nor_are_they_more_when_nothing_is_known_of_the_model(slots):
    twin = Twin(Sim("a", per_batch=0.002, per_cost=1e-5), slots=slots)
    twin.ask("load", "a")
    twin.run(2.0)
    for n in range(64):
        twin.at(2.0 + n * 0.005 / 64, lambda: twin.submit("a", 8))
    twin.run()

    assert len(twin.ran) <= slots + 1


def closed_loop(clients, slots, per_batch, share, seconds=1.0):
    """Throughput and mean latency of so many callers who send the next when the last is answered."""
    twin, rng, jobs = warm(share, slots, per_batch), random.Random(5), []
    end = twin.now + seconds

    def send():
        if twin.now < end:
            jobs.append(twin.submit("a", 8))
            twin._then[jobs[-1]] = send

    for _ in range(clients):
        twin.at(twin.now + rng.random() * per_batch, send)
    twin.run()
    return len(jobs) / seconds, sum(map(twin.latency, jobs)) / len(jobs)


@pytest.mark.parametrize(("clients", "slots"), [(1, 1), (1, 2), (2, 2), (3, 4)])
@pytest.mark.parametrize("per_batch", [0.002, 0.008, 0.05])
def test_callers_who_wait_for_their_answers_are_not_delayed(clients, slots, per_batch):
    throughput, latency = closed_loop(clients, slots, per_batch, 0.1)
    without, alone = closed_loop(clients, slots, per_batch, 0.0)

    assert throughput >= 0.99 * without
    assert latency <= 1.02 * alone


@pytest.mark.parametrize("slots", [1, 2])
def test_64_callers_get_no_less_throughput(slots):
    throughput, _ = closed_loop(64, slots, 0.008, 0.1)
    without, _ = closed_loop(64, slots, 0.008, 0.0)

    assert throughput >= 0.99 * without


def poisson(load, slots, share):
    """p99 of steady random traffic that takes this share of what full batches could serve."""
    twin, rng, jobs = warm(share, slots), random.Random(1), []
    twin.check = lambda: None
    rate = load * slots * (2048 / 8.5) / (0.002 + 2048 * 1e-5)
    when = twin.now
    while len(jobs) < 1.5 * rate:
        when += rng.expovariate(rate)
        jobs.append(when)
        twin.at(when, lambda: twin.submit("a", rng.randint(1, 16)))
    twin.run()
    latencies = sorted(twin.latency(job) for job in twin.jobs)
    return latencies[int(0.99 * len(latencies))]


@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize("load", [0.02, 0.3])
def test_steady_traffic_is_not_slower_for_the_window(load, slots):
    assert poisson(load, slots, 0.1) <= 1.1 * poisson(load, slots, 0.0)
