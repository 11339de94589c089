from __future__ import annotations

import pytest

from engine.tuning.quicker import Gains

WORTH = 1.05


@pytest.mark.parametrize(
    ("few", "full", "pays"),
    [
        ([3.0, 2.8, 3.1], [1.0, 1.0, 1.01], True),
        ([1.0, 1.0, 1.0], [1.2, 1.2, 1.3], True),
        ([1.02, 1.0, 1.03], [1.0, 1.01, 0.99], False),  # nothing gained
        ([3.0, 3.0, 3.0], [0.8, 0.9, 0.8], False),  # paid for by who sends much
        ([0.9, 0.9, 0.9], [1.5, 1.5, 1.5], False),
        ([1.0, 9.0, 1.0], [1.0, 1.0, 1.0], False),  # one odd round
    ],
)
def test_a_quicker_way_pays_when_few_or_many_texts_gain_and_neither_loses(few, full, pays):
    assert Gains(few, full).pays(WORTH) == pays


def test_what_it_gained_is_told():
    assert str(Gains([2.0], [1.0])) == "few texts 2.00 times as fast, a full batch 1.00"
