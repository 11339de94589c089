"""The tokens that an answer is made of, and how likely each was to the model that wrote it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Chance:
    """What a token spells, and the natural logarithm of the chance that the model gave it."""

    spelled: bytes
    logprob: float


@dataclass(frozen=True, slots=True)
class Chosen:
    """A token of an answer, and the likeliest ones at its place, best first."""

    chance: Chance
    top: tuple[Chance, ...] = ()
