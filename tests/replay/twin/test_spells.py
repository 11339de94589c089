"""Spells in which all that runs is slower: told from chance, and had again in blocks."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from replay.twin.clock import Clock
from replay.twin.recorded import measured
from replay.twin.server import Card
from replay.twin.sharing import Sharing
from replay.twin.spells import BLOCK, MOST, Spells, learned, nearby
from replay.twin.traffic import Traffic
from replay.twin.twin import simulate
from tests.replay.small import server, traffic
from tests.replay.twin.recordings import recorded

BEGAN = np.arange(6000) * 0.1


def weather(seed: int) -> np.ndarray:
    """Logarithms, one for two seconds, each most like the one before."""
    rng, found = np.random.default_rng(seed), [0.0]
    while len(found) < 300:
        found.append(0.8 * found[-1] + 0.6 * rng.normal(0, 0.3))
    return np.repeat(found, 20)


def test_what_neighbours_say_leaves_each_itself_out():
    assert nearby(np.array([5.0, 1.0, 3.0])) == pytest.approx([2.0, 4.0, 3.0])
    assert nearby(np.array([7.0])).tolist() == [0.0]


def test_spells_are_told_from_chance():
    slow, chance = weather(1), np.random.default_rng(2).normal(0, 0.3, len(BEGAN))

    factors, when = learned(BEGAN, slow + chance)
    assert len(factors) == 600 and np.corrcoef(np.log(when), slow)[0, 1] > 0.9
    assert (slow + chance - np.log(when)).std() == pytest.approx(0.3, rel=0.1)
    factors, when = learned(BEGAN, chance)
    assert len(factors) == 0 or np.log(factors).std() < 0.03
    factors, when = learned(BEGAN, np.zeros(len(BEGAN)))
    assert len(factors) == 0 and (when == 1).all()


def test_of_a_long_recording_blocks_from_all_over_it_are_kept():
    began = np.arange(4 * MOST) / 2
    factors, when = learned(began, np.repeat([0.0, 0.5], 2 * MOST))
    assert len(factors) == MOST and len(when) == len(began)
    assert np.mean(factors > 1.0) == pytest.approx(0.5, abs=0.02)


def test_they_come_again_in_blocks_and_for_a_seed_the_same():
    factors = tuple(float(n) for n in range(1, 101))
    once, same, other = (Spells(factors, random.Random(seed)) for seed in (1, 1, 2))
    drawn = [once.at(second + 0.5) for second in range(40 * BLOCK)]
    assert [same.at(second + 0.9) for second in range(40 * BLOCK)] == drawn
    assert [other.at(second) for second in range(40 * BLOCK)] != drawn
    steps = np.diff(drawn)
    assert np.mean((steps == 1) | (steps == -99)) >= 1 - 1 / BLOCK
    assert Spells((), random.Random(1)).at(5.0) == 1.0


def test_in_a_slow_spell_a_batch_takes_longer_and_a_quantum_does_less():
    on = server()
    sent = traffic(on, rate=0.5, seconds=60)
    slow = replace(on, cards=(replace(on.cards[0], spells=(3.0,)),))
    usual, slowed = (np.median(simulate(each, sent).answers.run) for each in (on, slow))
    assert slowed == pytest.approx(3 * usual)
    assert Sharing(Clock(), Card("a", "simulated", 1, 1, spells=(3.0,)), 0).rate == pytest.approx(1 / 3)


def test_a_recording_with_spells_has_a_twin_with_spells():
    """What was recorded of a server without any; every other ten seconds all takes twice as long."""
    recording = recorded()
    assert measured(recording).cards[0].spells == ()
    at = recording.batches["at"]
    slow = np.where((at / 10).astype(int) % 2 == 1, 2.0, 1.0)
    # With twice the time for all of it, so that no two of the one slot's batches overlap.
    batches = {**recording.batches, "at": 2 * at, "seconds": recording.batches["seconds"] * slow}
    changes = [{**change, "at": 2 * change["at"]} for change in recording.changes]

    found = measured(replace(recording, batches=batches, changes=changes))

    factors = np.array(found.cards[0].spells)
    assert np.quantile(factors, 0.9) / np.quantile(factors, 0.1) == pytest.approx(2.0, rel=0.25)
    assert any("in spells all batches take" in each for each in found.measured)
    assert simulate(found, Traffic.of(recording.trace(), found).between(0, 10), 1).answers.answered.any()
