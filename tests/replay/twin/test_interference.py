"""Batches that run beside others, where it is known how much that slows them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from replay.twin.interference import ALONE, NEAR, company, learned
from replay.twin.recorded import measured
from replay.twin.traffic import Traffic
from replay.twin.twin import simulate
from tests.replay.twin.recordings import recorded

UNITS = ("a", "b")


def batches(factor: float, idle: float, count: int = 3000, seed: int = 0):
    """What two slots ran, as columns: while both are busy each goes `factor` times as slowly. A batch takes
    0.1 s and 1 ms a cost alone, give or take a tenth; between two a slot is idle for so long on average."""
    rng = np.random.default_rng(seed)
    now, rows = 0.0, []
    free, running = (
        [0.0, 0.0],
        [None, None],
    )  # when a slot begins its next; unit, cost, start and seconds left
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
            alone = (0.1 + 0.001 * cost) * rng.uniform(0.9, 1.1)
            running[slot] = [UNITS[rng.integers(2)], cost, now, alone]
        else:
            rows.append((*ended[:3], now - ended[2]))
            running[slot], free[slot] = None, now + rng.exponential(idle)
    names, costs, began, seconds = zip(*rows, strict=True)
    return np.array(names, dtype=object), np.array(began), np.array(seconds), np.array(costs, dtype=float)


def test_others_are_counted_for_as_long_as_they_were_there():
    began, seconds = np.array([0.0, 1.0, 5.0, 5.0]), np.array([2.0, 2.0, 1.0, 1.0])
    assert company(began, seconds) == pytest.approx([0.5, 0.5, 1.0, 1.0])


@pytest.mark.parametrize("idle", [0.05, 0.2])
@pytest.mark.parametrize("factor", [1.0, 1.3, 1.9])
def test_what_batches_are_slowed_by_is_found_again(factor, idle):
    units, began, seconds, costs = batches(factor, idle)
    found = learned(units, costs, seconds, company(began, seconds), 2)
    # A batch counts as alone that had company for up to a tenth of its time, and the other way round.
    assert found.factors[1] == pytest.approx(factor, rel=NEAR * 0.6) and found.readings >= 20


def test_with_too_few_readings_nothing_is_learned_and_that_is_said():
    units, began, seconds, costs = (column[:30] for column in batches(1.5, 0.2))
    found = learned(units, costs, seconds, company(began, seconds), 2)
    assert found.factors == ALONE
    assert "too few ran so to tell" in found.words("cuda:0", 2)[0]
    assert found.words("cuda:0", 1) == []


def test_a_server_with_two_slots_is_measured_with_the_factor_and_times_without_it():
    """Of the recording's batches every second one is put beside the one before, and takes twice as long."""
    recording = recorded()
    told = dict(recording.batches)
    rows = np.arange(len(told["at"]))
    beside = rows // 2 % 2 == 1
    told["at"] = 10.0 * (rows // 2) + np.where(beside, 0.0, 5.0 * (rows % 2))
    told["seconds"] = np.where(beside, 2.0, 1.0) * 0.5
    (device,) = recording.snapshot["devices"]
    snapshot = {**recording.snapshot, "devices": [{**device, "slots": 2}]}

    found = measured(replace(recording, batches=told, snapshot=snapshot))

    (card,) = found.cards
    assert card.slowed == (1.0, pytest.approx(2.0))
    assert found.units["m1"].timing(card).curve.seconds == pytest.approx(0.5)
    assert any("2.00 beside 1" in each for each in found.assumed)
    sent = Traffic.of(recording.trace(), found).between(0, 10)
    alone = replace(found, cards=(replace(card, slowed=ALONE),))
    assert np.mean(simulate(found, sent, 1).answers.run) > 1.1 * np.mean(simulate(alone, sent, 1).answers.run)
