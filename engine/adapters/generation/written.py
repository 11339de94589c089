"""An answer while it is written: its tokens, the text that may leave, and what of it was told already."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tokenizers import Tokenizer

from engine.adapters.family import Progressed
from engine.adapters.generation.chances import Chances
from engine.adapters.generation.sampling import Weighed
from engine.adapters.generation.stopping import Detokenizer, StopStrings
from engine.chosen import Chosen
from engine.errors import EngineError
from engine.requests import Generated


class Written:
    """One sequence's, whoever chooses its tokens."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompt: Sequence[int],
        stops: Sequence[str],
        spelled: Sequence[bytes] | None,
    ) -> None:
        """`spelled`: what each token spells, where the chances of tokens were asked for."""
        self.tokens: list[int] = []
        self._text: list[str] = []
        self._told_text = self._told_tokens = self._told_length = self._told_chances = 0
        self._length = 0  # characters, those included that may not leave yet
        self._detokenizer = Detokenizer(tokenizer, prompt)
        self._stops = StopStrings(stops)
        self._chances = Chances(spelled) if spelled else None

    @property
    def told(self) -> bool:
        """Whether somebody may have read the beginning."""
        return self._told_tokens > 0

    def push(self, token: int, weighed: Weighed | None) -> bool:
        """The next token; whether its text ends with a stop string."""
        if self._chances and weighed:
            self._chances.took(token, weighed, self._length)
        self.tokens.append(token)
        piece = self._detokenizer.push(token)
        self._length += len(piece)
        return self._add(piece)

    def finish(self) -> bool:
        """Let out what was held back; whether that met a stop string."""
        stopped = self._add(self._detokenizer.finish())
        if not stopped:
            self._text.append(self._stops.finish())
        return stopped

    def answer(self, reason: str) -> Generated:
        """The whole of it: of one that ended for want of room, with the chances of all its tokens."""
        text = "".join(self._text)
        length = math.inf if reason == "length" else len(text)
        chosen = self._chances.within(length) if self._chances else ()
        return Generated(text, reason, tuple(self.tokens), chosen)

    def report(self, done: Generated | EngineError | None) -> Progressed:
        """What is new since the last report."""
        text, tokens = "".join(self._text[self._told_text :]), len(self.tokens) - self._told_tokens
        self._told_text, self._told_tokens = len(self._text), len(self.tokens)
        self._told_length += len(text)
        chosen = self._chosen(done)[self._told_chances :]
        self._told_chances += len(chosen)
        return Progressed(text, tokens, done, chosen)

    def _add(self, piece: str) -> bool:
        text, stopped = self._stops.push(piece)
        self._text.append(text)
        return stopped

    def _chosen(self, done: Generated | EngineError | None) -> tuple[Chosen, ...]:
        """The tokens of the text that was told; of a whole answer all that are not cut from it."""
        if isinstance(done, Generated):
            return done.chosen
        return self._chances.within(self._told_length) if self._chances else ()
