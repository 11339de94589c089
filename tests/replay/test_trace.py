import numpy as np
import pytest

from replay.trace import NO_SESSION, BadTrace, Kind, Trace, merged


def trace(*arrived: float, model: str = "m", sizes=None, session=None, name="t") -> Trace:
    sizes = sizes if sizes is not None else [10] * len(arrived)
    return Trace.of(name, arrived, models=[model] * len(arrived), input_size=sizes, session=session)


def test_arrivals_are_sorted_from_zero_and_what_was_mended_is_said():
    mended = trace(5.0, 3.0, 4.0, sizes=[50, -1, 40])
    assert mended.arrived.tolist() == [0, 1, 2]
    assert mended.input_size.tolist() == [0, 40, 50]
    assert mended.notes == (
        "1 arrivals were out of order and have been sorted",
        "1 negative sizes are taken as 0",
    )


def test_no_rows_are_no_trace():
    with pytest.raises(BadTrace, match="holds no requests"):
        trace()


def test_times_that_are_no_numbers_are_refused():
    with pytest.raises(BadTrace, match="no numbers"):
        trace(1.0, float("nan"))


def test_two_services_are_merged_by_their_wall_clocks():
    first, second = trace(2e9, 2e9 + 10, name="a"), trace(2e9 + 5, model="n", name="b")
    both = merged([first, second])
    assert both.arrived.tolist() == [0, 5, 10]
    assert [both.models[m] for m in both.model] == ["m", "n", "m"]
    assert both.started == 2e9


def test_sessions_of_two_services_stay_apart():
    both = merged([trace(0, 1, session=[0, NO_SESSION]), trace(0.5, session=[0])])
    assert both.session.tolist() == [0, 1, NO_SESSION]


def test_models_may_become_one():
    both = merged([trace(0, model="a"), trace(1, model="b"), trace(2, model="c")])
    fewer = both.renamed({"a": "x", "b": "x"})
    assert fewer.models == ("x", "c")
    assert fewer.model.tolist() == [0, 0, 1]
    with pytest.raises(BadTrace, match="no model z"):
        both.renamed({"z": "x"})


def test_a_slice_begins_at_zero():
    part = trace(0, 10, 20, 30).between(10, 30)
    assert part.arrived.tolist() == [0, 10]
    with pytest.raises(BadTrace, match="Nothing of t is left"):
        part.between(50, 60)


def test_sizes_grow_and_never_vanish():
    assert trace(0, 1, 2, sizes=[0, 1, 100]).sized(0.1, 1.0).input_size.tolist() == [0, 1, 10]


def test_inputs_and_answers_grow_apart():
    """What is kept for an answer grows with the answer, and what is kept for its prompt with the prompt."""
    kind = Kind("generate", (100, 50), kv_tokens=350)
    assert kind.sized(0.5, 2.0) == Kind("generate", (50, 25), kv_tokens=475)
    assert Kind("encode", (100,)).sized(2.0, 5.0) == Kind("encode", (200,))
    with pytest.raises(BadTrace, match="output size scale"):
        trace(0, 1).sized(1.0, 0.0)


def test_a_long_gap_is_told_of():
    """An outage looks like calm traffic, and makes a mean of it."""
    assert not trace(*np.arange(0, 1000, 0.5)).notes
    broken = trace(*np.arange(0, 500, 0.5), *np.arange(1100, 1500, 0.5))
    assert any("longest for 600 s, 500 s after the begin" in note for note in broken.notes)
    assert not trace(0, 100, 200, 300).notes  # seldom, and always so


def test_a_coarse_clock_is_seen_and_its_bursts_are_spread():
    coarse = trace(*np.repeat(np.arange(0, 30, 3), 10))
    assert coarse.resolution == 3 and "arrivals are known to 3 s only" in coarse.notes
    fine = coarse.spread(seed=1)
    assert fine.resolution == 0
    assert len(np.unique(fine.arrived)) == len(fine)
    assert np.abs(fine.arrived - coarse.arrived).max() <= 3 + fine.arrived[0]
    assert fine.arrived.tolist() == coarse.spread(seed=1).arrived.tolist()


def test_a_fine_clock_is_left_alone():
    fine = trace(0.0, 0.1, 0.5, 0.7)
    assert fine.resolution == 0 and fine.spread(1) is fine
