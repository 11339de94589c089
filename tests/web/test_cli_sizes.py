"""`--size-scale`: for inputs and answers together, or for each."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from web.cli import serai
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


@pytest.mark.parametrize(
    "said",
    ["many", "0", "-1", "inf", "tokens=2", "input=2,3", "input=x", "", "nan", "1e6", "input=1,input=2"],
)
def test_what_is_no_factor_is_refused(said):
    with pytest.raises(click.BadParameter):
        SIZES.convert(said, None, None)


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--size-scale", "1e300"),
        ("--size-scale", "1e6"),
        ("--size-scale", "input=1,input=2"),
        ("--scale", "nan"),
        ("--scale", "1001"),
        ("--speed", "0"),
        ("--speed", "inf"),
        ("--dwell", "nan"),
        ("--unit", "-1"),
        ("--seed", "-1"),
        ("--between", "nan:5"),
        ("--to", "ftp://x"),
        ("--to", "http://"),
        ("--to", "http://x:port"),
    ],
)
def test_a_replay_refuses_what_is_out_of_range(option, said, tmp_path):
    done = CliRunner().invoke(serai, ["replay", "m1", option, said, "--state-dir", str(tmp_path)])
    assert done.exit_code == 2 and option in done.output, done.output


def test_a_refusal_names_the_limit():
    with pytest.raises(click.BadParameter, match="1000"):
        SIZES.convert("input=1e300", None, None)


def options(command: click.Command, name: str = "serai") -> Iterator[tuple[str, click.Option]]:
    for option in command.params:
        if isinstance(option, click.Option):
            yield f"{name} {option.opts[0]}", option
    for each in command.commands.values() if isinstance(command, click.Group) else ():
        yield from options(each, f"{name} {each.name}")


def test_no_command_takes_what_is_no_number_for_one():
    kinds = (click.types.FloatParamType, click.types.IntParamType, click.FloatRange, click.IntRange)
    numbers = [(name, option) for name, option in options(serai) if isinstance(option.type, kinds)]
    taken = []
    for name, option in numbers:
        for said in ("nan", "inf", "-inf"):
            with contextlib.suppress(click.BadParameter):
                taken.append((name, option.type.convert(said, option, None)))

    assert len(numbers) > 20 and not taken
