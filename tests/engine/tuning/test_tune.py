from __future__ import annotations

from engine.catalog import load
from engine.entry import QUICK
from engine.tuning import inputs
from engine.tuning.knee import Point
from engine.tuning.quicker import Gains
from engine.tuning.references import compare
from engine.tuning.trial import Trial
from engine.tuning.tune import Tuning
from tests import weights

TAGGER = "nationaldesignstudio/rampart"


def test_texts_are_the_same_each_time_mostly_short_and_sometimes_long():
    lengths = sorted(len(text.split()) for text in inputs.texts(400))

    assert inputs.texts(400) == inputs.texts(400)
    assert 15 <= lengths[200] <= 35
    assert lengths[-1] > 150


def test_a_model_is_compared_with_the_library_that_defines_it():
    spec = load([weights.CATALOG]).models[TAGGER]

    found = compare(spec, weights.weights(TAGGER))

    assert found is not None and found.passed
    assert found.apart.max_difference <= 1e-4


def test_tuning_tries_what_there_is_and_ends_with_a_profile_when_its_time_is_over():
    spec = load([weights.CATALOG]).models[TAGGER]
    weights.weights(TAGGER)
    said: list[str] = []

    report = Tuning(spec, weights.test_sources().locate, "cpu", 1, 0.2).run(False, said.append)

    assert report.tried[0].name == "as it is" and report.tried[0].equal
    assert said[0] == "as it is"
    assert report.profile is not None and report.profile.limits is not None
    assert report.profile.limits.max_batch_cost == (
        report.batch_cost if report.bends else spec.limits.max_batch_cost
    )
    assert report.batch_cost > 0
    assert report.rates.keys() == {1}


def test_a_quicker_way_gets_the_batch_that_was_measured_without_it(monkeypatch):
    """On the CPU, where such a way is torch: it is told that it pays."""
    spec = load([weights.CATALOG]).models[TAGGER]
    weights.weights(TAGGER)
    measured = [Point(8, 1.0), Point(16, 1.1), Point(32, 3.9)]
    monkeypatch.setattr(Gains, "pays", lambda self, worth: True)
    monkeypatch.setattr(
        Trial, "curve", lambda self, *_: measured[: 1 if self.spec.backend in QUICK else None]
    )

    report = Tuning(spec, weights.test_sources().locate, "cpu:0", 1, 0.2).run(False, lambda name: None)

    assert report.chosen in QUICK and report.profile is not None and report.profile.backend == report.chosen
    assert report.batch_cost == 16 and report.profile.limits is not None
    assert report.profile.limits.max_batch_cost == 16
