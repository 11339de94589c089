"""Choosing the next token: what callers may ask, and each sequence by its own options and its own dice.

The dice are a generator on the CPU and one number a token, so that a seed gives the same answer on
every device and whoever runs beside it, up to rounding of the logits themselves.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.adapters.generation.vocabulary import Grammar
from engine.errors import InvalidInput
from engine.requests import GenerateOptions

MAX_STOPS = 16
MAX_STOP_LENGTH = 1024
MAX_BIASES = 1024
MAX_TOP_LOGPROBS = 20
GREEDY = 1e-4
"""A temperature below it is 0: nothing but the largest logit is left of float32's precision."""
NUCLEUS = 256
"""Candidates looked at first under top_p: sorting a whole vocabulary takes 30 times as long."""


def check(options: GenerateOptions, vocabulary: int) -> None:
    """Raises InvalidInput naming the first option that is wrong."""
    if not _is_int(options.max_new_tokens) or options.max_new_tokens < 1:
        raise InvalidInput(f"max_new_tokens must be an integer from 1, not {options.max_new_tokens!r}")
    _within("temperature", options.temperature, 0.0, 100.0)
    _within("top_p", options.top_p, 0.0, 1.0)
    if options.top_p == 0:
        raise InvalidInput("top_p must be more than 0")
    _within("frequency_penalty", options.frequency_penalty, -2.0, 2.0)
    _within("presence_penalty", options.presence_penalty, -2.0, 2.0)
    if options.seed is not None and not (_is_int(options.seed) and -(2**63) <= options.seed < 2**64):
        raise InvalidInput(f"seed must be an integer of 64 bits, not {options.seed!r}")
    if len(options.stop) > MAX_STOPS:
        raise InvalidInput(f"stop may hold {MAX_STOPS} strings, not {len(options.stop)}")
    for stop in options.stop:
        if not isinstance(stop, str) or not 0 < len(stop) <= MAX_STOP_LENGTH:
            raise InvalidInput(f"stop must hold strings of 1 to {MAX_STOP_LENGTH} characters")
    top = options.top_logprobs
    if top is not None and not (_is_int(top) and 0 <= top <= MAX_TOP_LOGPROBS):
        raise InvalidInput(f"top_logprobs must be an integer from 0 to {MAX_TOP_LOGPROBS}, not {top!r}")
    if len(options.logit_bias) > MAX_BIASES:
        raise InvalidInput(f"logit_bias may name {MAX_BIASES} tokens, not {len(options.logit_bias)}")
    for token, bias in options.logit_bias.items():
        if not _is_int(token) or not 0 <= token < vocabulary:
            raise InvalidInput(f"logit_bias names token {token!r}; tokens go from 0 to {vocabulary - 1}")
        _within("logit_bias", bias, -100.0, 100.0)


def _within(name: str, value: object, low: float, high: float) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not low <= value <= high:  # type: ignore[operator]
        raise InvalidInput(f"{name} must be a number from {low:g} to {high:g}, not {value!r}")


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


@dataclass(frozen=True, slots=True)
class Weighed:
    """Logarithms of chance: of a token, and of the likeliest with their ids, best first."""

    logprob: float
    best: tuple[tuple[int, float], ...]


class Sampler:
    """How one sequence chooses. Penalties count what it has generated, not its prompt."""

    def __init__(self, options: GenerateOptions, grammar: Grammar | None = None) -> None:
        self._options = options
        self._grammar = grammar
        self._dice = torch.Generator()
        if options.seed is None:
            self._dice.seed()
        else:
            self._dice.manual_seed(options.seed)
        self._counts: Counter[int] = Counter()
        self._penalises = bool(options.frequency_penalty or options.presence_penalty)
        self.takes_best = not (
            options.temperature >= GREEDY or self._penalises or options.logit_bias or grammar
        )
        """Whether the largest logit, as it is, is its choice."""

    def choose(self, logits: Tensor) -> int:
        """The next token by float32 logits (vocabulary,), which are left as they are."""
        logits = self._adjusted(logits)
        if self._options.temperature < GREEDY:
            return int(logits.argmax())
        # Less the largest first: a temperature near 0 then gives 0 and -inf, never inf - inf.
        chances = ((logits - logits.max()) / self._options.temperature).softmax(-1)
        roll = float(torch.rand((), generator=self._dice, dtype=torch.float64))
        if self._options.top_p >= 1:
            return _pick(chances.cumsum(-1), roll)
        likely, tokens = _nucleus(chances, self._options.top_p)
        return int(tokens[_pick(likely.cumsum(-1), roll)])

    def saw(self, token: int) -> None:
        """`token` is now part of the answer."""
        if self._penalises:
            self._counts[token] += 1
        if self._grammar is not None:
            self._grammar.take(token)

    def weighed(self, logits: Tensor, token: int) -> Weighed | None:
        """The chances of `token` and of the likeliest by logits (vocabulary,) as the model gave them.

        None where the caller did not ask for them.
        """
        if self._options.top_logprobs is None:
            return None
        logprobs = logits.float().log_softmax(-1)
        best = logprobs.topk(self._options.top_logprobs)
        ranked = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        return Weighed(float(logprobs[token]), tuple(ranked))

    def _adjusted(self, logits: Tensor) -> Tensor:
        if not (self._counts or self._options.logit_bias or self._grammar):
            return logits
        logits = logits.clone()
        if self._counts:
            tokens = torch.tensor(list(self._counts), device=logits.device)
            counts = torch.tensor(list(self._counts.values()), device=logits.device, dtype=logits.dtype)
            logits[tokens] -= self._options.presence_penalty + self._options.frequency_penalty * counts
        if self._options.logit_bias:
            tokens = torch.tensor(list(self._options.logit_bias), device=logits.device)
            biases = list(self._options.logit_bias.values())
            logits[tokens] += torch.tensor(biases, device=logits.device, dtype=logits.dtype)
        if self._grammar is not None:
            allowed = torch.from_numpy(self._grammar.allowed())
            logits.masked_fill_(~allowed.to(logits.device), -math.inf)
        return logits


def choose(logits: Tensor, samplers: Sequence[Sampler]) -> list[int | None]:
    """The next token of each row of (sequences, vocabulary); None where the logits are no numbers."""
    logits = logits.float()
    # A sum is enough to find them and, unlike isfinite, costs next to nothing. -inf may be meant.
    broken = [math.isnan(total) or total == math.inf for total in logits.sum(-1).tolist()]
    best = logits.argmax(-1).tolist() if any(sampler.takes_best for sampler in samplers) else []
    chosen: list[int | None] = []
    for row, sampler in enumerate(samplers):
        if broken[row]:
            chosen.append(None)
            continue
        chosen.append(best[row] if sampler.takes_best else sampler.choose(logits[row]))
    return chosen


def _nucleus(chances: Tensor, top_p: float) -> tuple[Tensor, Tensor]:
    """The fewest most likely tokens that reach `top_p` together (Holtzman et al., 2019)."""
    likely, tokens = chances.topk(min(NUCLEUS, chances.shape[-1]))
    if float(likely.sum()) < top_p:
        likely, tokens = chances.sort(descending=True)
    kept = int((likely.cumsum(-1) < top_p).sum()) + 1
    return likely[:kept], tokens[:kept]


def _pick(reached: Tensor, roll: float) -> int:
    """The index at which cumulative chances pass `roll` (from 0 to 1) of their total."""
    at = int(torch.searchsorted(reached, roll * float(reached[-1]), right=True))
    return min(at, reached.shape[-1] - 1)
