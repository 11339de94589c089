"""The states of a unit on a device and the moves between them."""

from __future__ import annotations

import itertools

import pytest

from engine.memory.footprint import Footprint
from engine.memory.residency import MOVES, Residency, Resident

A, L, R, V, F = Residency
ALLOWED = {(A, L), (A, F), (L, R), (L, F), (R, V), (V, A), (L, A), (R, A), (F, L), (F, A), (F, F)}


@pytest.mark.parametrize(("before", "after"), list(itertools.product(Residency, Residency)))
def test_only_the_moves_of_the_table_are_made(before, after):
    resident = Resident("a", "d", Footprint(1), state=before, since=1.0)

    if (before, after) in ALLOWED:
        resident.move(after, 2.0)
        assert (resident.state, resident.since) == (after, 2.0)
    else:
        with pytest.raises(AssertionError, match="a on d"):
            resident.move(after, 2.0)
        assert (resident.state, resident.since) == (before, 1.0)


def test_every_state_can_be_left_and_reached():
    assert set(MOVES) == set(Residency) == set().union(*MOVES.values())


def test_what_holds_weights_is_loading_ready_or_leaving():
    assert [s for s in Residency if Resident("a", "d", Footprint(1), state=s).resident] == [L, R, V]


@pytest.mark.parametrize(
    ("state", "yielding", "kv_tokens", "lends"),
    [(R, False, 0, True), (R, True, 0, False), (R, True, 5, True), (L, False, 0, False), (V, True, 5, False)],
)
def test_one_that_is_to_leave_lends_to_its_sequences_only(state, yielding, kv_tokens, lends):
    resident = Resident("a", "d", Footprint(1), state=state, yielding=yielding, kv_tokens=kv_tokens)

    assert resident.lends is lends


def test_sequences_keep_a_unit_busy_even_when_they_take_no_bytes_of_the_ledger():
    resident = Resident("a", "d", Footprint(1, kv_bytes_per_token=0), kv_tokens=7)

    assert resident.busy and resident.kv_bytes == 0
