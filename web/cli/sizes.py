"""How much larger inputs and answers are to be, as options say it."""

from __future__ import annotations

import math
from typing import Any

import click


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
        elif all(name in named for name, _, _ in parts):
            named |= {name: said for name, _, said in parts}
        else:
            self.fail(f"{value!r} is neither a number nor input=NUMBER,output=NUMBER", param, ctx)
        return self._factor(named["input"], param, ctx), self._factor(named["output"], param, ctx)

    def _factor(self, said: str, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            factor = float(said)
        except ValueError:
            factor = 0.0
        if not 0 < factor < math.inf:
            self.fail(f"{said[:40]!r} is no positive number", param, ctx)
        return factor


SIZES = Sizes()
