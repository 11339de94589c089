"""What preparation took, beside as many batches as ran then."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from replay.twin.coming import ENOUGH, Preparing
from replay.twin.recorded import measured
from replay.twin.traffic import Traffic
from replay.twin.twin import simulate
from tests.replay.small import server, traffic
from tests.replay.twin.recordings import recorded

EVERY = slice(None)


def test_preparation_is_slower_beside_batches_and_that_is_kept():
    recording = recorded()
    running = Preparing.of(recording).running
    assert set(running.tolist()) == {0, 1}  # it has one slot
    took = np.where(running > 0, 0.02, 0.001)
    slowed = replace(recording, requests={**recording.requests, "prepare_seconds": took})

    found = measured(slowed)

    assert set(found.units["m0"].prepare[1]) == {0.02} and 0.001 in found.units["m0"].prepare[0]
    quiet = Preparing.of(slowed).readings(EVERY)[0]
    assert set(quiet) == {0.001}
    assert simulate(found, Traffic.of(recording.trace(), found).between(0, 5)).answers.prepare.max() > 0.0199


def test_of_few_readings_the_nearest_others_count_too():
    few = Preparing(np.array([1.0] * 30 + [2.0] * 3), np.array([0] * 30 + [2] * 3))
    none, one, two = few.readings(EVERY)
    assert none == (1.0,) * 30 and len(one) == 33 and len(two) == 33 >= ENOUGH
    assert Preparing(np.zeros(0), np.zeros(0, dtype=np.int64)).readings(EVERY) == ((0.0,),)


def test_who_comes_while_a_batch_runs_is_prepared_as_such_were():
    on = server()
    units = {name: replace(unit, prepare=((0.0,), (0.5,))) for name, unit in on.units.items()}
    sent = traffic(on, rate=8, seconds=30)

    prepared = simulate(replace(on, units=units), sent).answers.prepare

    assert set(np.round(prepared, 6).tolist()) == {0.0, 0.5}
    assert 0.3 < np.mean(prepared > 0) < 1.0
    assert simulate(on, sent).answers.prepare.max() == pytest.approx(0.0)
