from __future__ import annotations

import math
import time
from dataclasses import replace

import numpy as np
import pytest

from engine.requests import ServiceClass
from replay.answers import Answers
from replay.plan import Basis, curves_version
from replay.twin.server import Unit
from replay.validation import (
    ALL,
    STALE_SECONDS,
    Badge,
    Measured,
    Tried,
    Validation,
    badge,
    errors,
    kendall,
)
from tests.replay.small import server, traffic, unit
from web.cli import plan_tables


def answers(latency: np.ndarray, models: list[str] | None = None) -> Answers:
    count = len(latency)
    nothing = np.zeros(count)
    return Answers.of(
        models=models or ["a"] * count,
        service_class=np.ones(count, dtype=np.int8),
        arrived=np.arange(count) / 10,
        latency=latency,
        prepare=nothing,
        queue=nothing,
        load=nothing,
        run=latency,
        outcomes=["ok"] * count,
        cold=nothing.astype(bool),
    )


SLOW = np.linspace(0.1, 1.0, 200)


def validation(**fields: object) -> Validation:
    real = Measured(answers(SLOW), {"a": 2}, {"a": 100}, 150)
    twin = Measured(answers(SLOW * 1.05), {"a": 3}, {"a": 100}, 140)
    told = {
        "at": 1000.0,
        "curves": "abc",
        "engine": "1",
        "devices": ("cpu",),
        "trace": "t",
        "errors": tuple(errors(real, twin)),
        "noise": tuple(errors(real, real)),
    }
    return Validation(**{**told, **fields})


def test_errors_are_signed_shares_of_what_was_real():
    whole, model = validation().errors

    assert (whole.model, model.model) == (ALL, "a")
    assert whole.p50 == pytest.approx(0.05) and whole.p99 == pytest.approx(0.05)
    assert whole.throughput < 0.01 and whole.answered == 0
    assert model.swaps == (2, 3) and model.peak_bytes == (100, 100) and whole.peak_bytes == (150, 140)


def test_what_was_never_answered_is_told_apart_from_what_was_slow():
    lost = np.where(np.arange(200) % 10 == 0, np.inf, SLOW)
    whole, _ = errors(Measured(answers(SLOW)), Measured(answers(lost)))
    assert whole.answered == pytest.approx(-0.1) and abs(whole.p50) < 0.05


def test_models_that_only_one_side_knows_are_not_compared():
    both = ["a"] * 100 + ["b"] * 100
    found = errors(Measured(answers(SLOW, both)), Measured(answers(SLOW[:100], ["a"] * 100)))
    assert [each.model for each in found] == [ALL, "a"]


def test_gates_are_never_less_than_twice_the_noise():
    off = errors(Measured(answers(SLOW)), Measured(answers(SLOW * 1.2)))
    assert [text[:3] for text in validation(errors=tuple(off)).missed] == ["p50", "p95"]
    noisy = errors(Measured(answers(SLOW)), Measured(answers(SLOW * 1.15)))
    assert validation(errors=tuple(off), noise=tuple(noisy)).missed == []
    assert validation(tau=0.7, capacity_error=-0.2).missed == [
        "the capacity is -20% off, and 10% is allowed",
        "configurations are ranked with a tau of 0.70, and 0.8 is asked for",
    ]


@pytest.mark.parametrize(
    ("one", "other", "tau"),
    [
        ([1, 2, 3, 4], [10, 20, 30, 40], 1.0),
        ([1, 2, 3, 4], [4, 3, 2, 1], -1.0),
        ([1, 2, 3, 4], [1, 2, 4, 3], 4 / 6),
        ([1, 1, 2], [1, 2, 3], 2 / math.sqrt(2 * 3)),
    ],
)
def test_tau_says_how_alike_two_rankings_are(one, other, tau):
    assert kendall(one, other) == pytest.approx(tau)


def test_pairs_that_differ_by_less_than_noise_say_nothing():
    real, twin = [1.0, 1.05, 2.0, 2.1], [2.0, 1.0, 4.0, 3.0]
    assert kendall(real, twin) < 1.0 and kendall(real, twin, 0.1) == pytest.approx(1.0)


def test_of_several_runs_of_the_twin_the_one_in_the_middle_counts():
    runs = [Measured(answers(SLOW * times), {"a": loads}) for times, loads in ((1.1, 1), (9.0, 2), (1.2, 9))]
    whole = errors(Measured(answers(SLOW), {"a": 2}), *runs)[0]
    assert whole.p50 == pytest.approx(0.2) and whole.swaps == (2, 2)


def test_nothing_can_be_ranked_by_equal_values():
    assert math.isnan(kendall([1, 1], [1, 2]))


def test_a_validation_is_found_again_by_its_readings(tmp_path):
    found = validation(tau=0.9, tried=(Tried("one slot", 0.3, 0.31, (2, 2), 0.001),))
    found.save(tmp_path / "kept")
    assert Validation.load(tmp_path / "kept", "abc") == found
    assert Validation.load(tmp_path / "kept", "other") is None


def test_a_validation_whose_sending_lagged_is_void_and_not_kept(tmp_path, capsys):
    """Targets of 0.2 s and more: 5 ms are allowed; of 2 s, a hundredth of that."""
    on = server(units(2.0))
    known = Basis(on, traffic(on).trace, traffic(on).trace, 0, tmp_path)
    quick = server(units(0.2))
    assert known.lag_limit == pytest.approx(0.02)
    assert replace(known, server=quick).lag_limit == 0.005
    good = validation(curves=curves_version(on))

    assert known.keep(good, 0.044) is None and known.provenance(False)["badge"] == "never validated"
    plan_tables.validation(good, 0.044, known.lag_limit)
    assert "Void: requests went out late, and 20.0 ms are allowed" in capsys.readouterr().out
    assert known.keep(replace(good, at=time.time()), 0.019) is not None
    assert known.provenance(False)["badge"] == "validated"
    known.keep(replace(good, tau=0.1, at=200_000.0), 0.019)
    plan_tables.provenance(known)
    assert "; failed (1970-01-0" in capsys.readouterr().out


def units(target: float) -> Unit:
    made = unit("a")
    return replace(made, facts=replace(made.facts, targets={ServiceClass.STANDARD: target}))


def test_a_badge_is_only_as_good_as_its_validation():
    good = validation()
    assert badge(good, now=2000.0, extrapolated=False) is Badge.VALIDATED
    assert badge(good, now=2000.0, extrapolated=True) is Badge.EXTRAPOLATED
    assert badge(good, now=1001.0 + STALE_SECONDS, extrapolated=False) is Badge.STALE
    assert badge(replace(good, tau=0.1), now=2000.0, extrapolated=False) is Badge.FAILED
    assert badge(None, now=0.0, extrapolated=False) is Badge.NEVER
