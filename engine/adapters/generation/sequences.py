"""One running generation: what the model has yet to read, what it has answered, and when that ends."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from engine.adapters.family import Progressed
from engine.adapters.generation.kv import Cache, Segment
from engine.adapters.generation.sampling import Sampler
from engine.adapters.generation.views import Glance, View
from engine.adapters.generation.vocabulary import Grammar
from engine.adapters.generation.written import Written
from engine.errors import EngineError, NotFinite
from engine.requests import Generated, GenerateOptions


@dataclass(frozen=True, slots=True)
class Prompt:
    """A tokenised prompt and how to go on from it."""

    ids: NDArray[np.int32]
    options: GenerateOptions
    max_new_tokens: int
    """What was asked, or less where the model's length leaves less."""
    stop_ids: tuple[int, ...] = ()
    """Stop strings that are special tokens: they have no text to be found in."""
    grammar: Grammar | None = None
    """At its beginning; each answer follows a copy."""
    spelled: Sequence[bytes] | None = None
    """What each token spells, where the chances of tokens were asked for."""
    lora: str | None = None
    """The adapter that writes the answer."""
    glances: tuple[Glance, ...] = ()
    """Its images, in the order of their tokens."""

    @property
    def most_tokens(self) -> int:
        """Of its sequence, at its longest."""
        return len(self.ids) + self.max_new_tokens


class Running:
    """A sequence between its first prompt token and the end of its answer."""

    def __init__(
        self,
        prompt: Prompt,
        cache: Cache,
        tokenizer: Tokenizer,
        eos: Collection[int],
        view: View | None = None,
    ) -> None:
        ids = prompt.ids.tolist()
        self.cache = cache
        self.view = view
        self.lora = prompt.lora
        self._grammar = prompt.grammar.fresh() if prompt.grammar else None
        self.sampler = Sampler(prompt.options, self._grammar)
        self.unread: list[int] = ids
        """Tokens that the model has not read: the rest of the prompt, later its own last token."""
        self._done: Generated | EngineError | None = None
        self._ends = frozenset(eos) | frozenset(prompt.stop_ids)
        self._most = prompt.max_new_tokens
        self._written = Written(tokenizer, ids, prompt.options.stop, prompt.spelled)

    @property
    def decoding(self) -> bool:
        """Whether its prompt is read."""
        return bool(self._written.tokens)

    @property
    def done(self) -> bool:
        """Whether it answered or failed."""
        return self._done is not None

    @property
    def readable(self) -> int:
        """Unread tokens up to an image that nobody has looked at yet."""
        count = len(self.unread)
        return count if self.view is None else self.view.readable(self.cache.length, count)

    @property
    def least(self) -> int:
        """The fewest unread tokens that a step can read."""
        return 1 if self.view is None else self.view.least(self.cache.length)

    def within(self, rows: int) -> int:
        """How many tokens it reads of a step that has so many rows for it."""
        count = max(0, min(rows, self.readable))
        return count if self.view is None else self.view.unbroken(self.cache.length, count)

    def segment(self, count: int) -> Segment:
        """Its next `count` tokens."""
        reach = None if self.view is None else self.view.reach(self.cache.length, count)
        return Segment(self.cache, count, reach)

    @property
    def nbytes(self) -> int:
        """On the device."""
        return self.cache.nbytes + (self.view.nbytes if self.view else 0)

    def read(self, count: int) -> None:
        """The model has read `count` more tokens."""
        del self.unread[:count]
        if self.view and not self.unread:
            self.view.forget()

    def fail(self, error: EngineError) -> None:
        self._done = error

    def take(self, token: int | None, logits: Tensor) -> None:
        """The model's next token by logits (vocabulary,); None where they were no numbers."""
        if token is None:
            self._done = NotFinite()
            return
        weighed = self.sampler.weighed(logits, token)
        self.unread.append(token)
        self.sampler.saw(token)
        if self._grammar and (wrong := self._grammar.wrong):
            self._done = wrong
        elif self._written.push(token, weighed):
            self._done = self._written.answer("stop")
        elif token in self._ends or (self._grammar and self._grammar.ended):
            self._written.finish()
            self._done = self._written.answer("stop")
        elif len(self._written.tokens) == self._most:
            self._written.finish()
            self._done = self._written.answer("length")

    def report(self) -> Progressed:
        """What is new since the last report."""
        return self._written.report(self._done)


def share(rows: int, sequences: Sequence[Running]) -> list[int]:
    """How many tokens each reads in a step of `rows`: one where the prompt is read, then prompts in order.

    May come to more than `rows` when more sequences than that are decoding, never by a prompt's tokens.
    """
    left = rows - sum(sequence.decoding for sequence in sequences)
    counts = []
    for sequence in sequences:
        if sequence.decoding:
            counts.append(1)
            continue
        counts.append(sequence.within(left))
        left -= counts[-1]
    return counts
