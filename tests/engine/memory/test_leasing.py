"""How large a batch the free bytes allow; what a batch takes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.conversation import Need
from engine.memory.footprint import Footprint
from engine.memory.leasing import Sized, largest, size
from engine.memory.workspace import Takes, WorkspaceCurve


def takes(*declared, **fields):
    return Takes(Footprint(0, *declared, **fields), WorkspaceCurve())


MODEL = takes(workspace_base=10, workspace_per_cost=2.0, kv_bytes_per_token=3)


def need(min_cost=1, want_cost=20, floor=0, least=0, want=0):
    return Need("a", "d", "s", min_cost, want_cost, kv_floor=floor, kv_min=least, kv_want=want)


@pytest.mark.parametrize(
    ("asked", "free", "granted"),
    [
        (need(), 1000, Sized(20, 50, 0)),  # all that is wanted
        (need(), 30, Sized(10, 30, 0)),  # what fits
        (need(min_cost=11), 30, None),  # not the least
        (need(min_cost=0), 11, None),  # less than a cost of 1 is no batch
        (need(min_cost=30, want_cost=20), 1000, Sized(30, 70, 0)),
        (need(), -5, None),
        (need(least=5, want=5), 50, Sized(12, 34, 5)),  # the first sequence before a larger batch
        (need(least=5, want=50), 1000, Sized(20, 50, 50)),
        (need(least=5, want=50), 80, Sized(20, 50, 10)),  # the others after it
        (need(floor=100, least=100, want=100), 50, Sized(20, 50, 100)),  # what runs is held already
        (need(floor=100, least=110, want=120), 82, Sized(20, 50, 110)),
        (need(least=20, want=20), 50, None),
    ],
)
def test_a_lease_is_the_largest_that_fits(asked, free, granted):
    assert size(asked, MODEL, free) == granted


def test_no_sequence_no_tokens():
    assert size(need(), takes(workspace_per_cost=2.0), 1000) == Sized(20, 40, 0)


def test_the_largest_job_that_could_ever_run():
    assert largest(MODEL, 100) == (45, 29)
    assert largest(MODEL, 5) == (0, 0)
    assert largest(takes(10, 2.0), 100) == (45, 1 << 62)


@settings(max_examples=300, deadline=None)
@given(
    st.integers(0, 10**7),
    st.one_of(st.just(0.0), st.floats(1e-6, 1e5)),
    st.integers(0, 10**5),
    st.integers(-1000, 10**12),
    st.integers(0, 10**5),
    st.integers(0, 10**6),
    st.tuples(st.integers(0, 10**5), st.integers(0, 10**5), st.integers(0, 10**5)),
)
def test_what_is_granted_fits_and_is_at_least_what_the_first_job_needs(
    base, per_cost, per_token, free, min_cost, more, kv
):
    floor, least, want = kv[0], kv[0] + kv[1], kv[0] + kv[1] + kv[2]
    footprint = takes(base, per_cost, per_token)

    granted = size(need(min_cost, min_cost + more, floor, least, want), footprint, free)

    needed = footprint.workspace(max(1, min_cost)) + (least - floor) * per_token
    if granted is None:
        assert needed > free - 2  # a byte of rounding at most
        return
    assert granted.workspace_bytes == footprint.workspace(granted.cost)
    assert granted.workspace_bytes + (granted.kv_tokens - floor) * per_token <= free
    assert max(1, min_cost) <= granted.cost <= max(1, min_cost + more)
    assert least <= granted.kv_tokens <= want
