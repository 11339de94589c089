from pathlib import Path

import numpy as np
import pytest

from replay.formats.reading import read
from replay.peaks import peak
from replay.scaling import Method, scaled
from replay.trace import BadTrace, Trace

AZURE = read(Path(__file__).parents[1] / "data" / "azure_llm_2023_code.csv.gz")


@pytest.mark.parametrize("method", Method)
@pytest.mark.parametrize("factor", [0.5, 1.0, 2.0, 2.5])
def test_the_load_is_so_many_times_as_high(method, factor):
    made = scaled(AZURE, factor, method, seed=1)
    assert made.rate == pytest.approx(AZURE.rate * factor, rel=0.05)
    assert (np.diff(made.arrived) >= 0).all() and made.arrived[0] == 0


def test_faster_clients_keep_every_request_and_its_order():
    made = scaled(AZURE, 3, Method.WARP, seed=1)
    assert len(made) == len(AZURE) and made.span == pytest.approx(AZURE.span / 3)
    assert (made.input_size == AZURE.input_size).all()


def test_copies_at_the_same_moments_grow_bursts_and_others_do_not():
    base = peak(AZURE.arrived, 1.0)
    dup, shift = (peak(scaled(AZURE, 3, m, seed=1).arrived, 1.0) for m in (Method.DUP, Method.SHIFT))
    assert dup > 2.7 * base
    assert shift < 2 * base


def test_the_same_seed_makes_the_same_traffic():
    first, again, other = (scaled(AZURE, 1.5, Method.SHIFT, seed) for seed in (1, 1, 2))
    assert first.arrived.tolist() == again.arrived.tolist() != other.arrived.tolist()


@pytest.mark.parametrize("method", [Method.DUP, Method.SHIFT])
def test_a_larger_load_is_a_smaller_one_and_more_beside_it(method):
    """So that whether targets hold does not change to and fro with the factor."""
    least, less, more = (
        set(zip(made.row.tolist(), np.round(made.arrived, 6).tolist(), strict=True))
        for made in (scaled(AZURE, factor, method, seed=1) for factor in (1.0, 1.3, 1.8))
    )
    assert least < less < more


def test_sessions_are_taken_whole_and_copies_are_sessions_of_their_own():
    trace = Trace.of(
        "t",
        np.arange(1000) / 10,
        models=["m"] * 1000,
        input_size=np.ones(1000),
        session=np.arange(1000) % 50,
    )
    made = scaled(trace, 1.5, Method.DUP, seed=3)
    sizes = np.bincount(made.session)
    assert set(sizes[sizes > 0]) == {20}
    assert len(sizes[sizes > 0]) > 60


def test_a_scale_that_is_none_is_refused():
    for factor in (0, -1, float("nan"), float("inf")):
        with pytest.raises(BadTrace, match="no positive number"):
            scaled(AZURE, factor, Method.WARP, seed=1)
