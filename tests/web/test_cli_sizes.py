"""`--size-scale`: for inputs and answers together, or for each."""

from __future__ import annotations

import click
import pytest

from web.cli.sizes import SIZES


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("0.02", (0.02, 0.02)),
        ("input=0.5", (0.5, 1.0)),
        ("output=2,input=0.1", (0.1, 2.0)),
    ],
)
def test_a_column_that_is_not_named_stays_as_it_is(said, found):
    assert SIZES.convert(said, None, None) == found


@pytest.mark.parametrize("said", ["many", "0", "-1", "inf", "tokens=2", "input=2,3", "input=x", ""])
def test_what_is_no_factor_is_refused(said):
    with pytest.raises(click.BadParameter):
        SIZES.convert(said, None, None)
