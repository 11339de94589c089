"""Each load test runs in its smallest form and prints its table, and its objectives can be missed."""

from __future__ import annotations

import importlib

import pytest

from loadtests import burst, load_beside, many_live, many_models, priority, scheduling_cost, soak, starvation
from tests.loadtests.figures import sample, seen, turn

# What each prints, whatever it finds; a busy or half-built machine may miss an objective, and says so.
TABLES = {
    "scheduling_cost": "one caller alone",
    "many_models": "FIFO + LRU",
    "burst": "64 requests within 5 ms",
    "starvation": "saturated: an 8,000-token job",
    "priority": "weights 3:1",
}
LIVE = {
    ("many_models", "--live"): "all fit",
    ("burst", "--live"): "one after another",
    ("load_beside",): "a process spins",
    ("soak",): "descriptors",
}


@pytest.mark.parametrize("name", TABLES)
def test_a_program_in_virtual_time_prints_its_table(name: str, capsys):
    status = importlib.import_module(f"loadtests.{name}").main(["--quick"])

    said = capsys.readouterr().out
    assert TABLES[name] in said
    assert status == ("missed:" in said)


@pytest.mark.timeout(300)  # a server starts, and on a busy machine that takes its time
@pytest.mark.parametrize("call", LIVE, ids=" ".join)
def test_a_live_program_prints_its_table(call: tuple[str, ...], capsys):
    name, *flags = call
    status = importlib.import_module(f"loadtests.{name}").main(["--quick", *flags])

    said = capsys.readouterr().out
    assert LIVE[call] in said
    assert status == ("missed:" in said)


def test_cores_that_are_slow_or_not_flat_miss():
    cell = scheduling_cost.Cell
    good = [cell("cores", 1, 0, 6.0), cell("cores", 1, 10_000, 9.0), cell("actors", 1, 0, 50.0)]

    assert scheduling_cost.missed(good) == []
    assert len(scheduling_cost.missed([*good, cell("cores", 12, 0, 11.0)])) == 1
    assert len(scheduling_cost.missed([*good, cell("actors", 12, 0, 61.0)])) == 1
    assert len(scheduling_cost.missed([cell("cores", 1, 0, 3.0), cell("cores", 1, 10_000, 9.0)])) == 1


def test_a_card_that_is_late_below_its_knee_misses():
    good, bad = many_models.Seen(0.995, 1.0), many_models.Seen(0.985, 1.0)

    assert many_models.missed([many_models.Row("equal", 100.0, good, bad, 10.0)]) == []
    assert len(many_models.missed([many_models.Row("equal", 100.0, bad, good, 10.0)])) == 1
    assert len(many_models.missed([many_models.Row("equal", 0.0, good, bad, 10.0)])) == 1


def test_a_burst_in_too_many_batches_misses_but_for_the_first():
    few, many = burst.Burst(2, (0.01,)), burst.Burst(3, (0.01,))

    assert burst.missed([burst.Case("a card", 1, (many, few), 0.01)]) == []
    assert len(burst.missed([burst.Case("a card", 1, (few, many), 0.01)])) == 1


def test_a_wait_of_more_than_three_batches_misses():
    assert starvation.missed([starvation.Row("saturated: x", (0.1, 0.29), 0.1)]) == []
    assert len(starvation.missed([starvation.Row("saturated: x", (0.1, 0.31), 0.1)])) == 1


def test_an_urgent_request_held_up_by_more_than_a_quantum_misses_and_so_do_shares_that_drift():
    alone, near, far = (
        priority.Row(name, (p99,), 0.5) for name, p99 in (("a", 0.01), ("b", 0.03), ("c", 0.05))
    )
    kept, drifted = priority.Shares(0.75, 0.72, 0.78), priority.Shares(0.75, 0.72, 0.79)

    assert priority.missed([alone, near], kept) == []
    assert len(priority.missed([alone, far], kept)) == 1
    assert len(priority.missed([alone, near], drifted)) == 1


def test_a_server_that_grows_misses():
    flat = [sample(at=t, rss=1000 + t % 2, descriptors=14) for t in range(60)]
    leaking = [sample(at=t, rss=1000 + 2 * t, descriptors=14) for t in range(60)]
    opening = [sample(at=t, rss=1000, descriptors=14 + t // 6) for t in range(60)]
    held = sample(at=60, rss=1000, descriptors=14, held=7)

    assert soak.missed(flat, flat[-1]) == []
    assert [told.split()[0] for told in soak.missed(leaking, flat[-1])] == ["rss"]
    assert [told.split()[0] for told in soak.missed(opening, flat[-1])] == ["descriptors"]
    assert len(soak.missed(flat, held)) == 1


def test_a_load_that_holds_up_others_misses_unless_any_work_would():
    assert load_beside.missed(seen(quiet=0.010, loading=0.0109, spinning=0.010)) == []
    assert len(load_beside.missed(seen(quiet=0.010, loading=0.012, spinning=0.010))) == 1
    assert load_beside.missed(seen(quiet=0.010, loading=0.012, spinning=0.011)) == []


def test_live_answers_that_are_late_or_errors_miss():
    assert many_live.missed(turn(on_time=100)) == []
    assert len(many_live.missed(turn(on_time=98, late=2))) == 1
    assert len(many_live.missed(turn(on_time=98, failed=2))) == 1
