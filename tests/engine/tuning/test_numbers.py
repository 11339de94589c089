from __future__ import annotations

import numpy as np

from engine.requests import Classification, Encoded, Entity, Extracted
from engine.tuning.numbers import apart, numbers


def test_vectors_are_compared_by_the_worst_cosine():
    good = np.array([1.0, 0.0], np.float32)
    found = apart([numbers(Encoded(dense=each)) for each in (good, good)], [good, np.array([0.6, 0.8])])

    assert found.cosine == np.float64(0.6)
    assert not found.within(0.99, 1.0)


def test_an_entity_that_only_one_side_has_counts_with_its_whole_score():
    entity = Entity("Ada", "person", 0.75, 0, 3)
    mine = numbers(Extracted(entities=(entity,), classifications=(Classification("good", 0.5),)))

    found = apart([mine], [{"good": 0.5}])

    assert found.cosine is None
    assert found.max_difference == 0.75


def test_vectors_of_different_sizes_are_nothing_alike():
    assert not apart([np.ones(3)], [np.ones(2)]).within(0.0, 1e9)
