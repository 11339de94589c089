"""Who holds which bytes: the sum never exceeds the budget."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.memory.ledger import Ledger, Line


def test_what_is_held_is_set_and_not_added():
    ledger = Ledger(1000, 0.2)

    assert ledger.hold(Line.WEIGHTS, "a", 500) and ledger.hold(Line.WEIGHTS, "a", 300)
    assert (ledger.held(Line.WEIGHTS, "a"), ledger.used_bytes, ledger.free_bytes) == (300, 300, 500)


@pytest.mark.parametrize(("size", "fits"), [(800, True), (801, False)])
def test_the_budget_is_what_the_headroom_leaves(size, fits):
    ledger = Ledger(1000, 0.2)

    assert ledger.hold(Line.WEIGHTS, "a", size) is fits
    assert ledger.used_bytes == (size if fits else 0)


def test_too_much_changes_nothing():
    ledger = Ledger(100, 0.0)
    ledger.hold(Line.WEIGHTS, "a", 60)

    assert not ledger.hold(Line.WEIGHTS, "a", 101)
    assert not ledger.hold(Line.KV, "a", 41)
    assert (ledger.held(Line.WEIGHTS, "a"), ledger.held(Line.KV, "a")) == (60, 0)


def test_what_others_hold_may_leave_it_over_budget_and_bytes_can_still_be_given_back():
    ledger = Ledger(100, 0.0)
    ledger.hold(Line.WEIGHTS, "a", 60)
    ledger.observe_foreign(70)

    assert ledger.free_bytes == -30
    assert not ledger.hold(Line.WORKSPACE, "1", 1)
    assert ledger.hold(Line.WEIGHTS, "a", 50) and ledger.hold(Line.WEIGHTS, "a", 0)
    ledger.check()
    ledger.observe_foreign(0)
    assert ledger.used_bytes == 0 and not list(ledger)


def test_books_that_do_not_balance_are_found():
    ledger = Ledger(100, 0.0)
    ledger.hold(Line.WEIGHTS, "a", 60)
    ledger.headroom = 0.5

    with pytest.raises(AssertionError, match="60 held of 50"):
        ledger.check()


entries = st.tuples(
    st.sampled_from([Line.WEIGHTS, Line.WORKSPACE, Line.KV, Line.CONTEXT, Line.FOREIGN]),
    st.sampled_from("abc"),
    st.integers(0, 1200),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(entries, max_size=60), st.sampled_from([0.0, 0.2]))
def test_whatever_is_asked_the_books_balance_within_the_budget(asked, headroom):
    ledger, books = Ledger(1000, headroom), {}
    for line, owner, size in asked:
        if line is Line.FOREIGN:
            ledger.observe_foreign(size)
            books[line, ""] = size
            continue
        others = sum(books.values()) - books.get((line, owner), 0)
        before = books.get((line, owner), 0)
        fits = size <= before or others + size <= ledger.budget_bytes
        assert ledger.hold(line, owner, size) is fits
        if fits:
            books[line, owner] = size
        ledger.check()
        assert ledger.used_bytes == sum(books.values())
        for each in Line:
            assert ledger.lines()[each] == sum(s for (kept, _), s in books.items() if kept is each)
