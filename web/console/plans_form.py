"""The form of a plan: what it may say, and the options of `serai plan study` that it stands for."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import click

from engine.errors import InvalidInput
from engine.units import base
from web.cli.plan_options import change_of

WHAT_IFS = (
    "vram",
    "speed",
    "devices",
    "pin",
    "unpin",
    "traffic",
    "method",
    "policy",
    "window",
    "headroom",
)
"""Options that take one value each, in the order of the form."""
OTHERS = ("add_model", "server", "as", "hours", "price", "seed", "search", "label")
DEFAULTS: Mapping[str, str] = {"traffic": "1", "method": "dup", "hours": "1", "seed": "0"}
NUMBERS = {
    "speed": float,
    "devices": int,
    "window": float,
    "headroom": float,
    "hours": float,
    "price": float,
    "seed": int,
}
BOUNDS = {
    "speed": (1e-3, 1000.0),
    "devices": (1, 64),
    "window": (0.0, 1.0),
    "headroom": (0.0, 0.9),
    "hours": (1e-3, 24 * 31.0),
    "price": (1e-6, 1e6),
    "seed": (0, 2**32 - 1),
    "traffic": (1e-3, 1000.0),
    "rate": (1e-6, 10_000.0),
}
MOST = 2000


def read(form: Mapping[str, str]) -> list[str]:
    """The options. Raises InvalidInput for what makes no sense."""
    said = kept(form)
    numbers = {name: _number(name, said[name], of) for name, of in NUMBERS.items() if name in said}
    _number("traffic", said.get("traffic", "1").removesuffix("x"), float)
    try:
        change = change_of(
            said.get("vram"),
            numbers.get("speed"),
            int(numbers["devices"]) if "devices" in numbers else None,
            _list(said, "pin"),
            _list(said, "unpin"),
            _added(said),
            said.get("traffic", "1").removesuffix("x"),
            said.get("method", "dup"),
            said.get("policy"),
            numbers.get("window"),
            numbers.get("headroom"),
        )
    except ValueError as error:
        raise InvalidInput(f"{error}.") from None
    except click.ClickException as error:
        raise InvalidInput(f"{error.message}.") from None
    for added in change.add:
        _within("rate", added.rate)
    return list(_options(said))


def refuse_unknown(form: Mapping[str, str], models: Collection[str]) -> None:
    """Raises InvalidInput for a pin of what is neither in `models` nor added. Without models all may be."""
    if not models:
        return
    said = kept(form)
    there = {*models, *(each.partition("=")[0] for each in _added(said))}
    for name in ("pin", "unpin"):
        for each in filter(None, _list(said, name).split(",")):
            if base(each) not in there:
                known = ", ".join(sorted(there))[:MOST]
                raise InvalidInput(
                    f"{name} names {each[:100]}, which that server does not have; it has {known}."
                )


def kept(form: Mapping[str, str]) -> dict[str, str]:
    """What differs from the defaults."""
    said = {name: form.get(name, "").strip()[:MOST] for name in (*WHAT_IFS, *OTHERS)}
    return {name: value for name, value in said.items() if value and value != DEFAULTS.get(name)}


def _options(said: Mapping[str, str]) -> Iterator[str]:
    for name in (*WHAT_IFS, "server", "hours", "price", "seed"):
        if name in said:
            value = _list(said, name) if name in ("pin", "unpin") else said[name]
            yield f"--{name}={value}"
    for name in ("add_model", "as"):
        for each in _lines(said, name):
            yield f"--{name.replace('_', '-')}={each}"
    if "search" in said:
        yield "--search"


def _list(said: Mapping[str, str], name: str) -> str:
    return ",".join(each.strip() for each in said.get(name, "").split(",") if each.strip())


def _lines(said: Mapping[str, str], name: str) -> list[str]:
    return [each.strip() for each in said.get(name, "").splitlines() if each.strip()]


def _added(said: Mapping[str, str]) -> list[str]:
    return _lines(said, "add_model")


def _number(name: str, said: str, of: type[float] | type[int]) -> float:
    least, most = BOUNDS[name]
    try:
        value = of(said)
    except ValueError:
        kind = "whole number" if of is int else "number"
        raise InvalidInput(f"{name} is a {kind} from {least:g} to {most:g}, not {said[:40]!r}.") from None
    return _within(name, value)


def _within(name: str, value: float) -> float:
    least, most = BOUNDS[name]
    if not least <= value <= most:
        raise InvalidInput(f"{name} is from {least:g} to {most:g}, not {str(value)[:40]}.")
    return value
