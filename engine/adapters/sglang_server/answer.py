"""One sequence: what an SGLang server is asked for it, and what becomes of its answer on the way to ours."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, cast

from tokenizers import Tokenizer

from engine.adapters.family import Prepared, Progressed
from engine.adapters.generation.sampling import GREEDY, Weighed
from engine.adapters.generation.sequences import Prompt
from engine.adapters.generation.written import Written
from engine.adapters.sglang_server.wire import Stream
from engine.errors import EngineError, InferenceFailed, InvalidInput
from engine.requests import Generated


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
        prompt = self.prompt
        self._written = Written(self._tokenizer, prompt.ids.tolist(), prompt.options.stop, prompt.spelled)

    @property
    def heard(self) -> bool:
        """Whether somebody may have read the beginning."""
        return self._written.told

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
        new = itertools.islice(enumerate(piece.get("output_ids") or ()), len(self._written.tokens), None)
        for place, token in new:
            if self.done is not None:
                return
            if self._written.push(int(token), weighed.get(place)):
                self.done = self._written.answer("stop")
        if self.done is None and (finish := about.get("finish_reason")):
            self._finish(finish)

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
        stopped = self._written.finish()
        ended = finish.get("type") == "length" and not stopped
        self.done = self._written.answer("length" if ended else "stop")

    def report(self) -> Progressed:
        """What is new since the last report."""
        return self._written.report(self.done)


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
