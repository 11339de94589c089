"""The chances of an answer's tokens, let out as their text is."""

from __future__ import annotations

from collections.abc import Sequence

from engine.adapters.generation.sampling import Weighed
from engine.chosen import Chance, Chosen


class Chances:
    """Knows where in the text each token begins: one that is held back or cut with its text stays here."""

    def __init__(self, spelled: Sequence[bytes]) -> None:
        """`spelled`: what each token of the model spells."""
        self._spelled = spelled
        self._chosen: list[Chosen] = []
        self._starts: list[int] = []

    def took(self, token: int, weighed: Weighed, start: int) -> None:
        """`start` counts the characters of the text before it."""
        top = tuple(Chance(self._spelled[each], logprob) for each, logprob in weighed.best)
        self._chosen.append(Chosen(Chance(self._spelled[token], weighed.logprob), top))
        self._starts.append(start)

    def within(self, length: float) -> tuple[Chosen, ...]:
        """Of the tokens that begin in the first `length` characters."""
        return tuple(c for c, start in zip(self._chosen, self._starts, strict=True) if start < length)
