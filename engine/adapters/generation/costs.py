"""What the filters, methods and operators of a chat template may make, told before they make it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from engine.adapters.generation.allowance import NODES, TooMuch, numbers, weight

MULTIPLYING = frozenset(
    {"tojson", "indent", "replace", "format", "join", "xmlattr", "urlize"}
    | {"translate", "expandtabs", "hex"}
)
"""Filters and methods whose result may have as many characters as the product of what they are given."""
HANDING_ON = frozenset(
    {"first", "last", "length", "count", "list", "reverse", "items", "attr", "default", "d", "random"}
    | {"map", "select", "reject", "selectattr", "rejectattr"}
)
"""Filters that give of a list or a namespace what is in it, and write nothing of it."""
COMPARING = frozenset(
    {"eq", "equalto", "==", "ne", "!=", "lt", "lessthan", "<", "le", "<=", "gt", "greaterthan", ">"}
    | {"ge", ">=", "in", "lower", "upper"}
)
"""Tests that look into all of a value."""
SPLITTING = frozenset({"split", "rsplit", "splitlines", "list"})
"""Those that make a value of every few characters."""
SQUARE = frozenset({"sum", "wordwrap", "striptags"})
"""Those that copy all that there is so far for each piece, in a loop that nothing interrupts."""
WIDTH = re.compile(r"\d{5}|\*|\{[^{}]*\{")
"""In a format: a width that is large, or is somewhere else."""


def cost(name: str, value: Any, given: Sequence[Any], named: Iterable[Any]) -> int:
    """Characters that a filter or method of `value` may make of it and of its arguments, some by name."""
    size, every = written(value), [*given, *named]
    match name, value, given:
        case "replace", str(), [str() as old, str() as new, *_]:
            return size + len(new) * (len(value) // max(1, len(old)) + 1)
    if name == "format" and isinstance(value, str):
        return formatted(value, every)
    if name in SPLITTING:
        return 8 * size
    if name == "round":
        return product("**", 10, numbers(every))
    around = sum(map(written, every)) + numbers(every)
    if name in SQUARE:
        return size * (size + around)
    return size * (around + 6) if name in MULTIPLYING else size + around


def formatted(form: str | bytes, given: Any) -> int:
    form = form if isinstance(form, str) else form.decode("latin-1")
    if WIDTH.search(form):
        raise TooMuch("the model's chat template formats with a width that is too large or not its own")
    return len(form) + (form.count("%") + form.count("{")) * (written(given) + 10_000)


def product(operator: str, left: Any, right: Any) -> int:
    """Characters that an operator may make."""
    if isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length() * (max(1, abs(right)) if operator == "**" else 1) + right.bit_length()
        if bits > 100_000:
            raise TooMuch("the model's chat template computes with numbers that are too large")
        return 0
    if operator == "*" and (isinstance(left, int) or isinstance(right, int)):
        times, many = (left, right) if isinstance(left, int) else (right, left)
        return max(0, times) * (_length(many) + 1)
    if operator == "%" and isinstance(left, str | bytes):
        return formatted(left, right)
    return _length(left) + _length(right)


def _length(value: Any) -> int:
    if isinstance(value, str | bytes):
        return len(value)
    return 8 * len(value) if isinstance(value, list | tuple) else 8


def written(value: Any) -> int:
    return len(value) if isinstance(value, str) else weight(value)


def listed(values: Iterable[Any]) -> tuple[Any, ...]:
    """With what a filter before made on demand as a list, which can be measured."""
    return tuple(list(islice(each, NODES)) if isinstance(each, Iterator) else each for each in values)
