"""Spans that a model proposes, and which of them are entities."""

from __future__ import annotations

import itertools
import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engine.adapters.labelling.choosing import Candidate, above, between, chosen, placed
from engine.adapters.preparing.windows import filled, owned

SPANS = st.lists(
    st.builds(
        lambda first, width, label, score: Candidate(first, first + width, label, score),
        st.integers(0, 12),
        st.integers(0, 4),
        st.integers(0, 2),
        st.floats(0.5, 1),
    ),
    max_size=12,
)


@given(SPANS)
def test_what_is_left_out_lies_across_something_at_least_as_likely(found):
    kept = chosen(found, flat=True, multi_label=False)

    for candidate in set(found) - set(kept):
        across = [k for k in kept if k.first <= candidate.last and candidate.first <= k.last]
        assert any(k.score >= candidate.score for k in across)


def test_many_spans_are_settled_as_few_are():
    rng = random.Random(4)
    found = [
        Candidate(first, first + rng.randint(0, 3), rng.randint(0, 2), rng.random())
        for first in rng.choices(range(300), k=900)
    ]

    flat = chosen(found, flat=True, multi_label=False)
    nested = chosen(found, flat=False, multi_label=False)

    assert all(a.last < b.first for a, b in itertools.pairwise(flat))
    for one, other in itertools.combinations(nested, 2):
        apart = one.last < other.first or other.last < one.first
        inside = one.first <= other.first <= other.last <= one.last
        around = other.first <= one.first <= one.last <= other.last
        assert apart or ((inside or around) and (one.first, one.last) != (other.first, other.last))
    assert len(flat) > 80
    assert len(nested) > len(flat)


@given(SPANS)
def test_flat_entities_never_overlap_and_the_best_is_always_among_them(found):
    kept = chosen(found, flat=True, multi_label=False)

    assert all(a.last < b.first for a, b in itertools.pairwise(kept))
    if found:
        assert max(c.score for c in found) == max(c.score for c in kept)


@given(SPANS)
def test_nested_entities_are_apart_or_one_inside_the_other(found):
    kept = chosen(found, flat=False, multi_label=False)

    for one in kept:
        for other in kept:
            apart = one.first > other.last or other.first > one.last
            inside = one.first >= other.first and one.last <= other.last
            around = other.first >= one.first and other.last <= one.last
            assert one is other or (apart or inside or around)
    assert len({(c.first, c.last) for c in kept}) == len(kept)


def test_a_span_may_have_several_labels_where_that_is_asked():
    found = [Candidate(1, 2, 0, 0.9), Candidate(1, 2, 1, 0.8), Candidate(2, 3, 1, 0.7)]

    assert chosen(found, flat=True, multi_label=True) == found[:2]
    assert chosen(found, flat=True, multi_label=False) == found[:1]


def test_each_label_has_its_threshold_and_no_span_leaves_the_text():
    chances = np.full((2, 2, 2), 0.6, np.float32)

    assert {(c.first, c.last, c.label) for c in above(chances, [0.5, 0.7])} == {
        (0, 0, 0),
        (0, 1, 0),
        (1, 1, 0),
    }


def test_a_span_told_by_its_tokens_is_as_likely_as_its_least_likely_part():
    chances = np.zeros((4, 1, 3), np.float32)
    chances[0, 0] = 0.9, 0.1, 0.8
    chances[1, 0] = 0.1, 0.7, 0.6
    chances[2, 0] = 0.1, 0.9, 0.4  # the inside breaks off here

    (found,) = between(chances, [0.5], 4)

    assert (found.first, found.last, round(found.score, 4)) == (0, 1, 0.6)
    assert between(chances, [0.5], 1) == []


@given(st.lists(st.integers(0, 9), max_size=60), st.integers(1, 20), st.integers(9, 40), st.integers(0, 8))
def test_windows_of_whole_words_fit_and_leave_nothing_out(sizes, most, room, overlap):
    spans = filled(sizes, most, room, overlap)

    assert spans[0].start == 0
    assert spans[-1].end == len(sizes)
    assert all(len(span) <= most and sum(sizes[span.start : span.end]) <= room for span in spans)
    assert all(b.start <= a.end < b.end for a, b in itertools.pairwise(spans))
    parts = owned(spans)
    assert [a.end for a in parts[:-1]] == [b.start for b in parts[1:]]


@given(st.integers(20, 90), st.integers(0, 3))
def test_a_span_belongs_to_one_window_which_holds_it_whole(count, width):
    spans = filled([1] * count, 20, 100, 8)
    holders = [
        (first, window)
        for window, own in zip(spans, owned(spans), strict=True)
        for first in range(window.start, window.end - width)
        if placed([Candidate(first - window.start, first - window.start + width, 0, 1.0)], window, own)
    ]

    assert [first for first, _ in sorted(holders, key=lambda h: h[0])] == list(range(count - width))
