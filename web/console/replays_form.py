"""The form of a replay: what it may say, and the options of `serai replay` that it stands for. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from engine.errors import InvalidInput
from replay.scaling import Method
from web.cli.sizes import MOST_TIMES as MOST

DEFAULTS: Mapping[str, str] = {
    "speed": "1",
    "scale": "1",
    "method": "warp",
    "size_scale": "1",
    "only": "",
    "between": "",
    "until": "",
    "seed": "",
}


def read(form: Mapping[str, str]) -> list[str]:
    """The options. Raises InvalidInput for what is none."""
    return list(_options(form))


def kept(form: Mapping[str, str]) -> dict[str, str]:
    """What differs from the defaults."""
    said = {name: form.get(name, "").strip()[:500] for name in DEFAULTS}
    return {name: value for name, value in said.items() if value and value != DEFAULTS[name]}


def told(asked: Mapping[str, str]) -> str:
    """For people."""
    words = {
        "speed": "{} times as fast",
        "scale": "{} times the load",
        "method": "by {}",
        "size_scale": "sizes {} times",
        "only": "only {}",
        "between": "from {} s",
        "until": "until {} s",
        "seed": "seed {}",
    }
    return (
        ", ".join(words[name].format(value) for name, value in asked.items() if name in words) or "as it was"
    )


def _options(form: Mapping[str, str]) -> Iterator[str]:
    for name in ("speed", "scale", "size_scale"):
        yield from (f"--{name.replace('_', '-')}", f"{_factor(form, name):g}")
    method = form.get("method") or DEFAULTS["method"]
    if method not in [str(each) for each in Method]:
        raise InvalidInput(f"A load is multiplied by {', '.join(Method)}; not by {method[:40]!r}.")
    yield from ("--method", method)
    for model in filter(None, (each.strip() for each in form.get("only", "").split(","))):
        yield f"--only={model[:300]}"
    begin, end = _seconds(form, "between", 0.0), _seconds(form, "until", math.inf)
    if begin >= end:
        raise InvalidInput(f"Nothing lies between {begin:g} and {end:g} s.")
    if begin or math.isfinite(end):
        yield f"--between={begin:g}:{end:g}"
    if seed := form.get("seed", "").strip():
        if not seed.isascii() or not seed.isdecimal() or len(seed) > 9:
            raise InvalidInput("A seed is a whole number.")
        yield from ("--seed", seed)


def _factor(form: Mapping[str, str], name: str) -> float:
    said = form.get(name, "").strip() or DEFAULTS[name]
    value = _number(said, name)
    if not 0 < value <= MOST:
        raise InvalidInput(f"{name.replace('_', ' ')} is above 0 and at most {MOST:g}, not {said[:40]}.")
    return value


def _seconds(form: Mapping[str, str], name: str, otherwise: float) -> float:
    said = form.get(name, "").strip()
    value = _number(said, name) if said else otherwise
    if value < 0 or math.isnan(value):
        raise InvalidInput(f"{name} is in seconds from the recording's start, not {said[:40]}.")
    return value


def _number(said: str, name: str) -> float:
    try:
        return float(said)
    except ValueError:
        raise InvalidInput(f"{name.replace('_', ' ')} is a number, not {said[:40]!r}.") from None
