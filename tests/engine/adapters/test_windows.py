from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.adapters.preparing.windows import Span, fit, owned, windows
from engine.catalog import ModelSpec, Source
from engine.errors import InputTooLong
from engine.requests import Overflow, Task

SPEC = ModelSpec(
    id="m", family="f", tasks=(Task.EXTRACT,), sources=(Source(directory=str(Path())),), overflow="window"
)


@given(st.integers(0, 2000), st.integers(8, 200), st.integers(0, 7))
def test_windows_cover_everything_and_overlap_enough(length, most, overlap):
    spans = windows(length, most, overlap)

    assert spans[0].start == 0
    assert spans[-1].end == length
    assert all(len(span) <= most for span in spans)
    assert all(a.end - b.start >= overlap for a, b in pairwise(spans))


@given(st.integers(0, 2000), st.integers(8, 200), st.integers(0, 7))
def test_every_token_belongs_to_one_window_that_holds_it(length, most, overlap):
    spans = windows(length, most, overlap)
    parts = owned(spans)

    assert [i for part in parts for i in range(part.start, part.end)] == list(range(length))
    assert all(s.start <= p.start <= p.end <= s.end for s, p in zip(spans, parts, strict=True))


def test_the_entrys_policy_holds_unless_the_request_has_another():
    assert len(fit(30, 10, 2, SPEC, Overflow.DEFAULT)) == 4
    assert fit(30, 10, 2, SPEC, Overflow.TRUNCATE) == [Span(0, 10)]
    with pytest.raises(InputTooLong, match="30 tokens; m takes 10"):
        fit(30, 10, 2, SPEC, Overflow.ERROR)
    assert fit(10, 10, 2, SPEC, Overflow.ERROR) == [Span(0, 10)]
