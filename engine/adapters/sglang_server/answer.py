"""One sequence: what an SGLang server is asked for it, and what becomes of its answer on the way to ours."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any, cast

from tokenizers import Tokenizer

from engine.adapters.family import Prepared, Progressed
from engine.adapters.generation.chances import Chances
from engine.adapters.generation.sampling import GREEDY, Weighed
from engine.adapters.generation.sequences import Prompt
from engine.adapters.generation.stopping import Detokenizer, StopStrings
from engine.adapters.sglang_server.wire import Stream
from engine.errors import EngineError, InferenceFailed, InvalidInput
from engine.requests import Chosen, Generated


class Answer:
    """From the first time it is sent to its end; it may be sent twice while nobody has heard of it.

    Text is made here, of the tokens that come: stop strings and half characters are then as they are
    with the other backend, whatever the server makes of them.
    """

    def __init__(self, prepared: Prepared, tokenizer: Tokenizer) -> None:
        self.prompt = cast(Prompt, prepared.payload)
        self.kv_tokens = prepared.kv_tokens
        self.stream: Stream | None = None
        self.rid = ""
        self.sent_again = False
        self.done: Generated | EngineError | None = None
        self._tokenizer = tokenizer
        self._begin()

    def _begin(self) -> None:
        self._tokens: list[int] = []
        self._text: list[str] = []
        self._told_text = self._told_tokens = self._told_length = self._told_chances = self._written = 0
        self._detokenizer = Detokenizer(self._tokenizer, self.prompt.ids.tolist())
        self._stops = StopStrings(self.prompt.options.stop)
        self._chances = Chances(self.prompt.spelled) if self.prompt.spelled else None

    @property
    def heard(self) -> bool:
        """Whether somebody may have read the beginning."""
        return self._told_tokens > 0

    def again(self) -> None:
        """What came was not told, and is forgotten."""
        self.stream, self.sent_again = None, True
        self._begin()

    def body(self, rid: str) -> dict[str, Any]:
        """Of `POST /generate`."""
        options = self.prompt.options
        body: dict[str, Any] = {
            "rid": rid,
            "input_ids": self.prompt.ids.tolist(),
            "sampling_params": self._sampling(),
        }
        if options.top_logprobs is not None:
            body |= {"return_logprob": True, "top_logprobs_num": options.top_logprobs}
        return body

    def _sampling(self) -> dict[str, Any]:
        options = self.prompt.options
        sampling: dict[str, Any] = {
            "max_new_tokens": self.prompt.max_new_tokens,
            "temperature": options.temperature if options.temperature >= GREEDY else 0.0,
            "top_p": options.top_p,
            "frequency_penalty": options.frequency_penalty,
            "presence_penalty": options.presence_penalty,
            "no_stop_trim": True,
        }
        if options.stop:
            sampling["stop"] = list(options.stop)
        if self.prompt.stop_ids:
            sampling["stop_token_ids"] = list(self.prompt.stop_ids)
        if options.seed is not None:
            sampling["sampling_seed"] = options.seed % 2**63
        if options.logit_bias:
            sampling["logit_bias"] = {str(token): bias for token, bias in options.logit_bias.items()}
        if options.grammar:
            sampling[options.grammar.kind] = options.grammar.text
        return sampling

    def take(self, piece: Mapping[str, Any]) -> None:
        """The answer as it is now. Nothing happens once it is `done`."""
        if "error" in piece:
            self.done = self.done or InferenceFailed("SGLang failed in the middle of this answer.")
            return
        about = piece.get("meta_info") or {}
        weighed = _weighed(about)
        new = itertools.islice(enumerate(piece.get("output_ids") or ()), len(self._tokens), None)
        for place, token in new:
            if self.done is not None:
                return
            self._take(int(token), weighed.get(place))
        if self.done is None and (finish := about.get("finish_reason")):
            self._finish(finish)

    def _take(self, token: int, weighed: Weighed | None) -> None:
        if self._chances and weighed:
            self._chances.took(token, weighed, self._written)
        self._tokens.append(token)
        piece = self._detokenizer.push(token)
        self._written += len(piece)
        text, stopped = self._stops.push(piece)
        self._text.append(text)
        if stopped:
            self._end("stop")

    def _finish(self, finish: Mapping[str, Any]) -> None:
        if finish.get("type") == "abort":
            said = str(finish.get("message", ""))[:200]
            bad = finish.get("status_code") == 400
            self.done = (
                InvalidInput(f"SGLang refuses this: {said}")
                if bad
                else InferenceFailed("SGLang gave this answer up.")
            )
            return
        text, stopped = self._stops.push(self._detokenizer.finish())
        self._text.append(text if stopped else text + self._stops.finish())
        self._end("length" if finish.get("type") == "length" and not stopped else "stop")

    def _end(self, reason: str) -> None:
        text = "".join(self._text)
        length = math.inf if reason == "length" else len(text)
        chosen = self._chances.within(length) if self._chances else ()
        self.done = Generated(text, reason, tuple(self._tokens), chosen)

    def report(self) -> Progressed:
        """What is new since the last report."""
        text, tokens = "".join(self._text[self._told_text :]), len(self._tokens) - self._told_tokens
        self._told_text, self._told_tokens = len(self._text), len(self._tokens)
        self._told_length += len(text)
        chosen = self._chosen()[self._told_chances :]
        self._told_chances += len(chosen)
        return Progressed(text, tokens, self.done, chosen)

    def _chosen(self) -> tuple[Chosen, ...]:
        if isinstance(self.done, Generated):
            return self.done.chosen
        return self._chances.within(self._told_length) if self._chances else ()


def _weighed(about: Mapping[str, Any]) -> dict[int, Weighed]:
    """The chances that a piece tells, by place in the answer: entries are [logprob, token, text]."""
    own = about.get("output_token_logprobs") or ()
    top = about.get("output_top_logprobs") or ()
    found: dict[int, Weighed] = {}
    for place, (logprob, *_) in enumerate(own):
        ranked = (top[place] if place < len(top) else None) or ()
        best = tuple((int(token), float(chance)) for chance, token, *_ in ranked)
        found[place] = Weighed(float(logprob), best)
    return found
