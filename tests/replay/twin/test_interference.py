"""Batches that run beside others, where it is known how much that slows them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from replay.twin.clock import Clock
from replay.twin.company import Occupancy
from replay.twin.interference import learned
from replay.twin.recorded import measured
from replay.twin.server import Card, assumed
from replay.twin.sharing import Sharing
from replay.twin.traffic import Traffic
from replay.twin.twin import simulate
from tests.replay.twin.recordings import recorded

UNITS = ("a", "b")
NONE = np.zeros(0)


def batches(factor: float, idle: float, count: int = 3000, seed: int = 0, spells: float = 1.0):
    """What two slots ran, as columns: while both are busy each goes `factor` times as slowly. A batch takes
    20 ms and 2 ms a cost alone, give or take a tenth; between two a slot is idle for so long on average.
    Every other ten seconds all that begins takes `spells` times as long."""
    rng = np.random.default_rng(seed)
    now, rows = 0.0, []
    free, running = [0.0, 0.0], [None, None]
    # When a slot begins its next; unit, cost, start and seconds left.
    while len(rows) < count:
        speed = 1 / factor if None not in running else 1.0
        due = [free[n] - now if job is None else job[3] / speed for n, job in enumerate(running)]
        slot = int(np.argmin(due))
        now += due[slot]
        for job in running:
            if job is not None:
                job[3] -= due[slot] * speed
        if (ended := running[slot]) is None:
            cost = int(rng.integers(5, 60))
            alone = (0.02 + 0.002 * cost) * rng.uniform(0.9, 1.1) * (4 if rng.random() < 0.01 else 1)
            alone *= spells if int(now / 10) % 2 else 1.0
            running[slot] = [UNITS[rng.integers(2)], cost, now, alone]
        else:
            rows.append((*ended[:3], now - ended[2]))
            running[slot], free[slot] = None, now + rng.exponential(idle)
    names, costs, began, seconds = zip(*rows, strict=True)
    return np.array(names, dtype=object), np.array(began), np.array(seconds), np.array(costs, dtype=float)


def found(factor: float, idle: float, count: int, seed: int = 0, spells: float = 1.0):
    units, began, seconds, costs = batches(factor, idle, count, seed, spells)
    order = np.argsort(began)
    units, began, seconds, costs = units[order], began[order], seconds[order], costs[order]
    beside = Occupancy.of(began, seconds, NONE, NONE, 2).beside_batches(began, seconds)
    return learned(units, costs, seconds, beside)


def test_others_are_counted_for_as_long_as_they_were_there():
    began, seconds = np.array([0.0, 1.0, 5.0, 5.0]), np.array([2.0, 2.0, 1.0, 1.0])
    loads, took = np.array([2.5, 5.0]), np.array([1.0, 0.25])
    there = Occupancy.of(began, seconds, loads, took, 2)
    beside = there.beside_batches(began, seconds)
    assert beside.without == pytest.approx(np.array([[0.5, 0.5], [0.25, 0.5], [0, 0.75], [0, 0.75]]))
    assert beside.loading == pytest.approx(np.array([[0, 0], [0.25, 0], [0, 0.25], [0, 0.25]]))
    assert there.beside_loads(loads, took) == pytest.approx([0.5, 1.0])
    assert beside.rates(np.array([1.0, 2.0]), 4.0) == pytest.approx([0.75, 0.5625, 0.40625, 0.40625])


@pytest.mark.parametrize("idle", [0.05, 0.3])
@pytest.mark.parametrize("factor", [1.0, 1.3, 1.9])
def test_what_batches_are_slowed_by_is_found_again(factor, idle):
    told = found(factor, idle, 600)
    assert told.factors == (1.0, pytest.approx(factor, rel=0.05))
    assert told.readings[1] > 50 and told.loading == 1.0


def test_a_machine_that_is_slow_for_a_while_is_not_taken_for_company():
    """In slow spells batches are longer, and so more of them have company."""
    told = [found(1.2, 0.2, 600, seed, spells=2.0).factors[1] for seed in range(4)]
    assert np.median(told) == pytest.approx(1.2, rel=0.06)


def test_twenty_readings_move_what_is_assumed_and_three_do_not():
    few = [found(1.0, 1.0, 20, seed) for seed in range(5)]
    more = [found(1.0, 0.3, 100, seed) for seed in range(5)]
    assert np.median([told.factors[1] for told in few]) == pytest.approx(assumed(1), rel=0.05)
    assert np.median([told.factors[1] for told in more]) < 1.1
    assert any("mostly assumed" in told.words("cuda:0")[1][0] for told in few)
    assert "readings)" in more[0].words("cuda:0")[0][0]


def test_beside_more_than_were_seen_it_goes_on_as_is_assumed():
    card = Card("cuda:0", "cuda", 4, 1, slowed=(1.0, 1.2))
    assert [card.slowing(n) for n in range(3)] == [1.0, 1.2, pytest.approx(1.2 * assumed(2) / assumed(1))]
    assert Card("cuda:0", "cuda", 4, 1).slowing(3) == 1.0


def test_a_batch_goes_on_as_fast_as_its_company_lets_it_moment_by_moment():
    clock = Clock()
    card = Card("cuda:0", "cuda", 2, 1, slowed=(1.0, 2.0), loading=1.5)
    sharing, ended = Sharing(clock, card, 0), {}
    for at, work, name in ((0.0, sharing.batch, "a"), (1.0, sharing.batch, "b"), (6.0, sharing.load, "c")):
        clock.at(at, work, 2.0, lambda name=name: ended.setdefault(name, clock.now))
    clock.run()
    # a has 1 s alone and 2 s beside b, b has then 1 s left; c begins when both are over.
    assert ended == {"a": pytest.approx(3.0), "b": pytest.approx(4.0), "c": pytest.approx(8.0)}

    clock.at(10.0, sharing.load, 2.0, lambda: ended.setdefault("load", clock.now))
    clock.at(11.0, sharing.batch, 2.0, lambda: ended.setdefault("beside", clock.now))
    clock.run()
    # The load has 1 s left, and 1.5 s to go; the batch does 1 s of its two meanwhile.
    assert ended["load"] == pytest.approx(12.5) and ended["beside"] == pytest.approx(13.5)


def test_a_server_with_two_slots_is_measured_with_the_factor_and_times_without_it():
    """Of the recording's batches every second one is put beside the one before, and takes twice as long."""
    recording = recorded()
    told = dict(recording.batches)
    rows = np.arange(len(told["at"]))
    beside = rows // 2 % 2 == 1
    told["at"] = 10.0 * (rows // 2) + np.where(beside, 0.0, 5.0 * (rows % 2))
    told["seconds"] = np.where(beside, 2.0, 1.0) * 0.5
    told["batch"] = rows + 10**6  # nobody's: requests know them at other times
    (device,) = recording.snapshot["devices"]
    snapshot = {**recording.snapshot, "devices": [{**device, "slots": 2}]}

    found = measured(replace(recording, batches=told, snapshot=snapshot))

    (card,) = found.cards
    assert card.slowed == (1.0, pytest.approx(2.0, rel=0.03))
    assert found.units["m1"].timing(card).curve.seconds == pytest.approx(0.5, rel=0.03)
    assert any("beside 1 more a batch takes" in each for each in (*found.measured, *found.assumed))
    sent = Traffic.of(recording.trace(), found).between(0, 10)
    alone = replace(found, cards=(replace(card, slowed=(1.0,)),))
    assert np.mean(simulate(found, sent, 1).answers.run) > 1.1 * np.mean(simulate(alone, sent, 1).answers.run)
