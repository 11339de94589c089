"""How much more, faster or larger than recorded traffic is to be, as options say it."""

from __future__ import annotations

from typing import Any

import click

from web.cli.options import Finite

MOST_TIMES = 1000.0
"""Whatever is multiplied: more has no use, and a plan or a sender would run out of memory or time."""

TIMES = Finite(min=0, max=MOST_TIMES, min_open=True)


class Sizes(click.ParamType[tuple[float, float]]):
    """`0.1` for both, or `input=0.1,output=2`; where one is not named it stays as it is."""

    name = "FACTOR"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, float]:
        if isinstance(value, tuple):
            return value
        named = {"input": "1", "output": "1"}
        parts = [part.partition("=") for part in str(value).split(",")]
        if len(parts) == 1 and not parts[0][1]:
            named = dict.fromkeys(named, parts[0][0])
        elif len({name for name, _, _ in parts}) < len(parts):
            self.fail(f"{str(value)[:40]!r} names a column twice", param, ctx)
        elif all(name in named for name, _, _ in parts):
            named |= {name: said for name, _, said in parts}
        else:
            self.fail(f"{str(value)[:40]!r} is neither a number nor input=NUMBER,output=NUMBER", param, ctx)
        return self._factor(named["input"], param, ctx), self._factor(named["output"], param, ctx)

    def _factor(self, said: str, param: click.Parameter | None, ctx: click.Context | None) -> float:
        return float(TIMES.convert(said, param, ctx))


SIZES = Sizes()
