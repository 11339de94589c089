"""What a caller asks of a model that takes any labels: names, what the model reads for each, thresholds.

A catalogue entry's `labels` maps a name in lower case to what the model reads for it, or to several such
separated by `|`; any other name is read as it stands. Its names are what is looked for when nothing is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.catalog import ModelSpec
from engine.errors import InputTooLong, InvalidInput
from engine.requests import ExtractOptions

MAX_LABEL = 2000
"""Characters of one label or description."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Labels in the order in which the model reads them, each with its name in answers and its threshold."""

    prompts: tuple[str, ...]
    names: tuple[str, ...]
    thresholds: tuple[float, ...]

    def __len__(self) -> int:
        return len(self.prompts)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """One for every label, and those of labels that have their own."""

    common: float
    own: Mapping[str, float]

    @classmethod
    def of(cls, spec: ModelSpec, options: ExtractOptions, fallback: float) -> Thresholds:
        """The request's, else the entry's, else `fallback`. Raises InvalidInput."""
        common = options.threshold
        if common is None:
            common = spec.options.get("threshold", fallback)
        own = options.extra.get("thresholds", spec.options.get("thresholds", {}))
        if not isinstance(own, Mapping) or not all(isinstance(label, str) for label in own):
            raise InvalidInput("options.thresholds maps labels to numbers between 0 and 1.")
        return cls(chance(common), {label: chance(value) for label, value in own.items()})

    def __getitem__(self, name: str) -> float:
        return self.own.get(name, self.common)


class OpenLabels:
    """The names that an entry has, and any other."""

    def __init__(self, spec: ModelSpec) -> None:
        self._model = spec.id
        self._table = {name.casefold(): tuple(_parts(read)) for name, read in spec.labels.items()}
        self._defaults = tuple(spec.labels)

    def choose(
        self, asked: Sequence[str] | Mapping[str, str], thresholds: Thresholds, fewest: int = 1
    ) -> Wanted:
        """`asked` are names, or names with the descriptions that the model reads instead.

        Raises InvalidInput for a label that is empty or no text, and when fewer than `fewest` are left.
        """
        described = asked if isinstance(asked, Mapping) else {}
        pairs = [(checked(described[name]), name) for name in described] or [
            (prompt, name) for name in (asked or self._defaults) for prompt in self._read(name)
        ]
        names = dict(reversed(pairs))  # of one prompt the name that was asked first
        prompts = tuple(dict.fromkeys(prompt for prompt, _ in pairs))
        if len(prompts) < fewest:
            raise InvalidInput(f"{self._model} looks for the labels that it is given; name some in labels.")
        chosen = tuple(checked(names[prompt]) for prompt in prompts)
        return Wanted(prompts, chosen, tuple(thresholds[name] for name in chosen))

    def _read(self, name: str) -> tuple[str, ...]:
        return self._table.get(checked(name).casefold()) or (name,)


def fits(labels: Iterable[Sequence[Any] | NDArray[Any]], most: int, model: str) -> None:
    """Raises InputTooLong where one of these labels, as tokens, is longer than what reads it takes."""
    longest = max(map(len, labels), default=0)
    if longest > most:
        raise InputTooLong(
            f"A label, or the prompt of all labels, takes {longest} tokens; {model} reads {most} at once.",
            length=longest,
            max_length=most,
        )


def flag(spec: ModelSpec, options: ExtractOptions, name: str, fallback: bool) -> bool:
    """The request's `options.NAME`, else the entry's, else `fallback`. Raises InvalidInput."""
    value = options.extra.get(name)
    if value is None:
        value = spec.options.get(name, fallback)
    if not isinstance(value, bool):
        raise InvalidInput(f"options.{name} is true or false.")
    return value


def number(spec: ModelSpec, options: ExtractOptions, name: str, fallback: float) -> float:
    """The request's `options.NAME`, else the entry's, else `fallback`; from 0 to 1. Raises InvalidInput."""
    value = options.extra.get(name)
    return chance(spec.options.get(name, fallback) if value is None else value, f"options.{name}")


def names(value: Any, where: str) -> tuple[str, ...]:
    """A list of names that came with a request. Raises InvalidInput."""
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list | tuple) or not all(isinstance(name, str) for name in given):
        raise InvalidInput(f"{where} is a list of names.")
    return tuple(given)


def no_arrays(value: Any, where: str) -> None:
    """Raises InvalidInput where something of free shape that came with a request holds an array."""
    if isinstance(value, np.ndarray):
        raise InvalidInput(f"{where} holds an array of numbers, which says nothing here.")
    parts: Iterable[Any] = value.values() if isinstance(value, Mapping) else ()
    for part in value if isinstance(value, list | tuple) else parts:
        no_arrays(part, where)


def _parts(read: str) -> list[str]:
    return [part.strip() for part in read.split("|") if part.strip()]


def chance(value: Any, what: str = "A threshold") -> float:
    """`value`, where it is one. Raises InvalidInput: for no number, and for one beyond 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        # an integer may have more digits than Python writes
        said = f", not {value}" if isinstance(value, float) else ""
        raise InvalidInput(f"{what} is a number between 0 and 1{said}.")
    return float(value)


def checked(label: Any, what: str = "A label") -> str:
    """`label`, where it is one. Raises InvalidInput."""
    if not isinstance(label, str) or not label.strip():
        raise InvalidInput(f"{what} is a text that is not empty.")
    if len(label) > MAX_LABEL:
        raise InvalidInput(f"{what}, {label[:50]!r}..., has {len(label)} characters; {MAX_LABEL} are taken.")
    try:
        label.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"{what} has a lone surrogate at {error.start}; it is no Unicode.") from error
    return label
