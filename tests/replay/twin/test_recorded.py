"""From a recording to a twin, and back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.adapters import simulated
from replay.plan import curves_version
from replay.trace import BadTrace
from replay.twin.described import simulated_server
from replay.twin.recorded import measured
from replay.twin.traffic import Traffic
from replay.twin.twin import simulate
from tests.replay.twin.recordings import SETTINGS, recorded
from tests.replay.twin.world import six_models
from tests.simulation import MIB


def test_what_was_recorded_runs_again_as_it_ran():
    recording = recorded()
    server = simulated_server(SETTINGS, six_models(), measured(recording).cards)
    sent = Traffic.of(recording.trace(), server)

    once, again = (simulate(server, sent, 7, keep=True) for _ in range(2))

    assert once.ran == again.ran
    batches = recording.batches
    written = list(zip(batches["unit"], batches["cost"].tolist(), batches["jobs"].tolist(), strict=True))
    assert [(ran.unit, ran.cost, len(ran.jobs)) for ran in once.ran] == written
    assert once.answers.told() == recording.answers().told()
    latency = recording.answers().latency
    assert once.answers.latency == pytest.approx(latency, abs=1e-5)


def test_the_server_of_a_recording_has_its_cards_sizes_times_and_rules():
    server = measured(recorded())

    (card,) = server.cards
    assert (card.name, card.slots, card.memory_bytes) == ("simulated:a", 1, 420 * MIB)
    assert server.units.keys() == {"m0", "m1", "m2", "m3", "m4", "g"}
    assert server.units["m2"].footprint.weights_bytes == 124 * MIB and server.units["m2"].degrade == "m1"
    assert server.units["m3"].loads.disk[0] == pytest.approx(0.371 + 0.0613 * 3)
    timing = server.units["m1"].timing(card)
    assert timing.curve.usual(100) == pytest.approx(0.00413 + 0.00071 + 100 * 0.0002301, rel=0.1)
    assert timing.known(60) and not timing.known(5000)
    assert server.scheduling.max_model_jobs == 200
    assert curves_version(server) == curves_version(measured(recorded()))
    slower = replace(server.units["m1"], timings={"simulated": server.units["m0"].timing(card)})
    assert curves_version(server) != curves_version(replace(server, units={**server.units, "m1": slower}))


def test_a_twin_of_measured_times_is_near_what_was_measured():
    recording = recorded()
    server = measured(recording)

    results = simulate(server, Traffic.of(recording.trace(), server), 1)

    answers = recording.answers()
    for share, close in ((0.5, 0.15), (0.95, 0.1), (0.99, 0.2)):
        real = np.quantile(answers.latency[np.isfinite(answers.latency)], share)
        assert np.quantile(results.answers.latency[results.answers.answered], share) == pytest.approx(
            real, rel=close
        )


def test_a_seed_gives_the_same_run_and_another_seed_another_one():
    recording = recorded()
    server = measured(recording)
    sent = Traffic.of(recording.trace(), server).between(0, 10)

    one, same, other = (simulate(server, sent, seed, keep=True) for seed in (1, 1, 2))

    assert one.ran == same.ran and one.changes == same.changes
    assert one.ran != other.ran


def test_a_recording_that_says_nothing_of_its_server_is_refused_in_words():
    with pytest.raises(BadTrace, match="does not say what server"):
        measured(replace(recorded(), snapshot={}))


def test_sizes_that_the_recording_lacks_are_those_of_the_weights_files():
    """It was cut short, and had begun before any model was there."""
    cut = replace(recorded(), snapshot={**recorded().snapshot, "footprints": {}})
    alone = measured(cut)
    assert alone.units["m1"].footprint.workspace_per_cost == 0
    assert "m1: a batch is taken to need no memory beside the weights" in alone.assumed

    told = measured(cut, lambda spec: simulated.FAMILY.footprint(spec, Path()))

    assert told.units["m1"].footprint.workspace_per_cost == 1011 and told.assumed == ()


def test_a_recording_without_loads_says_how_fast_they_are_taken_to_be():
    recording = recorded()
    nothing = replace(recording, changes=(), snapshot={**recording.snapshot, "loads": []})
    server = measured(nothing)
    loads = server.units["m1"].loads
    assert not loads.seen and loads.disk[0] == pytest.approx(107 * MIB / 1e9)
    assert any("m1: nobody saw it load from disk; 1.00 GB/s is taken, for no" in a for a in server.assumed)

    others = [change for change in recording.changes if change["unit"] != "m1"]
    server = measured(replace(nothing, changes=others))
    assert any("m1: nobody saw it load" in a and "as others had" in a for a in server.assumed)
    assert server.units["m0"].loads.seen and simulate(server, Traffic.of(recording.trace(), server)).swaps(
        "m1"
    )


def test_what_ran_a_few_times_is_extrapolated_and_that_is_said():
    recording = recorded()
    rows = np.flatnonzero(recording.batches["unit"] == "m1")[3:]
    few = {name: np.delete(column, rows) for name, column in recording.batches.items()}

    server = measured(replace(recording, batches=few))

    said = "m1: only 3 of its batches were seen to run on simulated:a; others are extrapolated from these"
    assert said in server.assumed
    results = simulate(server, Traffic.of(recording.trace(), server))
    assert results.extrapolated["m1"] > 20 and results.beyond


def test_a_slot_that_is_slow_to_go_on_is_slow_in_the_twin_too():
    """A recording in which two milliseconds lay between the batches of a slot."""
    recording = recorded()
    batches = dict(recording.batches)
    order = np.argsort(batches["at"])
    late = np.empty(len(order))
    late[order] = 0.002 * np.arange(len(order))
    batches["at"] = batches["at"] + late
    requests = dict(recording.requests)
    requests["at"], requests["batches"] = requests["at"] * 0, requests["batches"]

    found = measured(replace(recording, batches=batches, requests=requests))

    assert measured(recording).cards[0].handover == 0.0
    assert found.cards[0].handover == pytest.approx(0.002, abs=1e-5)
    sent = Traffic.of(recording.trace(), measured(recording)).between(0, 10)
    quick = replace(found, cards=(replace(found.cards[0], handover=0.0),))
    slow, fast = simulate(found, sent, 1), simulate(quick, sent, 1)
    assert np.median(slow.answers.run) - np.median(fast.answers.run) == pytest.approx(0.002, abs=0.001)


def test_what_is_prepared_at_once_comes_into_the_queue_at_once():
    server = measured(recorded())
    units = {name: replace(unit, prepare=((0.01, 0.02),)) for name, unit in server.units.items()}
    sent = Traffic.of(recorded().trace(), server).between(0, 10)

    def moments(together: float) -> int:
        run = simulate(replace(server, units=units, together=together), sent, 1)
        return len(np.unique(np.round(run.answers.arrived + run.answers.prepare, 6)))

    assert moments(1.0) < 0.7 * moments(0.0)
