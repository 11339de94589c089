"""How large a batch should be."""

from __future__ import annotations

import pytest

from engine.scheduling.rules import SchedulingRules
from engine.scheduling.sizing import Sizing
from tests.engine.scheduling.jobs import BACKGROUND, INTERACTIVE, STANDARD, facts


@pytest.fixture
def sizing() -> Sizing:
    """Unit `a` on device `d` takes a millisecond a cost of 1."""
    made = Sizing(SchedulingRules())
    for cost in (1, 10, 100, 1000, 10_000):
        made.observe("a", "d", cost, cost / 1000)
    return made


def soft(sizing, urgency, now, want=10**6, **fields):
    return sizing.soft_cost(facts(**fields), "d", urgency, want, now)


def test_a_batch_takes_half_its_own_class_s_target(sizing):
    assert soft(sizing, INTERACTIVE, 0.0) == pytest.approx(100, abs=1)
    assert soft(sizing, STANDARD, 0.0) == pytest.approx(1000, abs=1)
    assert soft(sizing, BACKGROUND, 0.0) == pytest.approx(30_000, abs=1)


def test_a_model_may_have_targets_of_its_own(sizing):
    assert soft(sizing, STANDARD, 0.0, targets={STANDARD: 1.0}) == pytest.approx(500, abs=1)


def test_while_interactive_work_is_about_nothing_else_runs_longer_than_an_eighth_of_its_target(sizing):
    sizing.interactive_seen = 100.0

    for now in (100.0, 105.0, 110.0):
        assert soft(sizing, STANDARD, now) == soft(sizing, BACKGROUND, now) == pytest.approx(25, abs=1)
    assert soft(sizing, INTERACTIVE, 100.0) == pytest.approx(100, abs=1)
    assert soft(sizing, STANDARD, 110.1) == pytest.approx(1000, abs=1)


def test_a_generation_quantum_obeys_the_same_bound(sizing):
    assert sizing.quantum(STANDARD, 0.0) == 0.05
    sizing.interactive_seen = 0.0
    assert (sizing.quantum(STANDARD, 1.0), sizing.quantum(INTERACTIVE, 1.0)) == (0.025, 0.05)


def test_what_is_wanted_is_never_exceeded(sizing):
    assert soft(sizing, BACKGROUND, 0.0, want=7) == 7


def test_while_nothing_is_known_everything_that_is_wanted_may_go(sizing):
    assert sizing.soft_cost(facts("new"), "d", STANDARD, 500, 0.0) == 500
    assert sizing.soft_cost(facts(), "elsewhere", STANDARD, 500, 0.0) == 500
    assert (sizing.predicted("new", "d", 5), sizing.predicted("a", "d", 0)) == (0.0, 0.001)


def test_the_usual_cost_is_the_profile_s_or_the_rules(sizing):
    assert sizing.usual_cost(facts(max_batch_cost=64)) == 64
    assert sizing.usual_cost(facts()) == SchedulingRules().batch_cost
