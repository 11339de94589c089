"""What one rendering of a chat template may take: characters, nodes and processor time."""

from __future__ import annotations

import time
from collections.abc import ItemsView, KeysView, Mapping, ValuesView
from typing import Any

from jinja2 import TemplateError
from jinja2.runtime import Undefined
from jinja2.utils import Namespace

SECONDS = 2.0
"""Processor time of the thread. The templates of published models take milliseconds."""
CHARACTERS = 1 << 26
"""Of all values made on the way, some of them again and again: concatenating in a loop is quadratic."""
PER_CHARACTER = 64
"""How many more, by character of the conversation."""
MOST = 1 << 29
"""However long the conversation is."""
OUTPUT = 1 << 20
"""Characters written, beyond `PER_OUTPUT` times the conversation."""
PER_OUTPUT = 8
NODES = 500_000
"""Values inside of one value: lists of lists of the same list double with each."""
DEEP = 100

_LISTED = (list, tuple, set, frozenset, KeysView, ValuesView, ItemsView)
_SHORT = (*_LISTED, Mapping, Undefined, float, type(None))
"""By itself, without what is in it."""


class TooMuch(TemplateError):
    """A template that would take more than it may."""


class Allowance:
    """Counts down for one rendering, of one thread."""

    def __init__(self, size: int) -> None:
        """`size`: characters of what is rendered."""
        self._left = min(MOST, CHARACTERS + PER_CHARACTER * size)
        self._output = OUTPUT + PER_OUTPUT * size
        self._end = time.thread_time() + SECONDS

    def step(self) -> None:
        """One turn of a loop, or one call. Raises TooMuch."""
        if time.thread_time() > self._end:
            raise TooMuch(f"the model's chat template computes for more than {SECONDS:g} s")

    def take(self, characters: int) -> None:
        """Before a value of that size is made. Raises TooMuch."""
        self._left -= characters
        if self._left < 0:
            raise TooMuch("the model's chat template makes larger values than it may")
        self.step()

    def write(self, characters: int) -> None:
        """Raises TooMuch."""
        self._output -= characters
        if self._output < 0:
            raise TooMuch("the model's chat template writes far more than the conversation holds")
        self.step()


def weight(value: Any) -> int:
    """About the characters of `value` when it is written. Raises TooMuch where it has no bound."""
    total = nodes = 0
    level = [value]
    for _ in range(DEEP):
        below: list[Any] = []
        for each in level:
            if isinstance(each, Namespace):  # written, it doubles with each that holds another twice
                raise TooMuch("the model's chat template writes a namespace, or keeps one in another value")
            nodes += 1
            total += _own(each)
            if isinstance(each, Mapping):
                below += [*each.keys(), *each.values()]
            elif isinstance(each, _LISTED):
                below += each
            if nodes + len(below) > NODES:
                raise TooMuch("the model's chat template makes a list of too many values")
        if not below:
            return total
        level = below
    raise TooMuch("the model's chat template makes lists too deep in one another")


def numbers(values: Any) -> int:
    """The sum of the whole numbers among a call's arguments: widths, counts and the like."""
    return sum(abs(value) for value in values if isinstance(value, int) and not isinstance(value, bool))


def _own(value: Any) -> int:
    if isinstance(value, str | bytes):
        return len(value) + 2
    if isinstance(value, int):
        return value.bit_length() // 3 + 1
    if isinstance(value, _SHORT):
        return 24
    return 64
