"""Tokens per second with 1, 4 and 16 sequences at once, beside transformers' `generate` with one.

One thread, SmolLM2-135M-Instruct by default, greedy, prompts read within the time that is measured. The
rates are taken in turns, so that a busy machine slows all of them alike. Run it as
`python -m loadtests.generation`; it exits with 1 when an objective is missed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from transformers import AutoModelForCausalLM
from transformers.utils import logging as transformers_logging

from engine import catalog, config
from engine.adapters.causal_lm import FAMILY
from engine.adapters.family import Prepared
from engine.adapters.generation.decoder import Decoder
from engine.catalog import ModelSpec
from engine.requests import GenerateOptions, Item, Task
from engine.sources.locate import Sources

MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
CATALOG = Path(__file__).parents[1] / "catalog"
PROMPT = "Once upon a time, in a small town beside a river, there lived {} old clockmakers who"
AT_ONCE = (1, 4, 16)
QUANTUM = 0.05
"""Seconds, as the scheduler asks for."""
OBJECTIVES = {1: 0.9, 4: 2.0, 16: 4.0}
"""Least multiple of the rate of `generate`."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Generated tokens per second: of `generate`, and of so many sequences at once."""

    reference: float
    together: dict[int, float]
    quantum: float
    """Median seconds of a quantum with the most sequences; one step may take longer than was asked."""

    def ratio(self, sequences: int) -> float:
        return self.together[sequences] / self.reference

    def missed(self) -> list[int]:
        return [n for n, least in OBJECTIVES.items() if self.ratio(n) < least]


def measure(spec: ModelSpec, path: Path, new_tokens: int, rounds: int) -> Rates:
    """The best of `rounds` rounds: what neighbours on the machine take only ever makes a round slower."""
    preparer = FAMILY.preparer(spec, path)
    options = GenerateOptions(max_new_tokens=new_tokens, raw=True)
    items = [Item(text=PROMPT.format(n)) for n in range(2, 2 + max(AT_ONCE))]
    prompts = [p for p in preparer.prepare(Task.GENERATE, items, options) if isinstance(p, Prepared)]
    transformers_logging.disable_progress_bar()
    plain = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, use_safetensors=True).eval()
    decoder = FAMILY.load(spec, path, "cpu")
    reference: list[float] = []
    together: dict[int, list[float]] = {n: [] for n in AT_ONCE}
    quanta: list[float] = []
    _generate(plain, prompts[0], 2)
    for _ in range(rounds):
        reference.append(_generate(plain, prompts[0], new_tokens))
        for n in AT_ONCE:
            rate, took = _advance(decoder, prompts[:n])
            together[n].append(rate)
            if n == max(AT_ONCE):
                quanta += took
    return Rates(max(reference), {n: max(rates) for n, rates in together.items()}, median(quanta))


def _generate(model: Any, prompt: Prepared, new_tokens: int) -> float:
    ids = torch.from_numpy(prompt.payload.ids).long()[None]
    began = time.perf_counter()
    out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=new_tokens)
    return float((out.shape[1] - ids.shape[1]) / (time.perf_counter() - began))


def _advance(decoder: Decoder, prompts: Sequence[Prepared]) -> tuple[float, list[float]]:
    """Tokens per second, and the seconds of each quantum."""
    joining = {str(n): prompt for n, prompt in enumerate(prompts)}
    running, tokens, took = len(prompts), 0, []
    while running:
        began = time.perf_counter()
        progress = decoder.advance(joining, (), QUANTUM)
        took.append(time.perf_counter() - began)
        joining = {}
        for progressed in progress.values():
            tokens += progressed.tokens
            running -= progressed.done is not None
    return tokens / sum(took), took


def table(rates: Rates) -> str:
    lines = [f"{'':30} {'tokens/s':>9} {'of generate':>12}"]
    lines.append(f"{'transformers generate, 1':30} {rates.reference:9,.1f} {1:11.2f}x")
    lines += [
        f"{f'by quanta, {n} at once':30} {rate:9,.1f} {rates.ratio(n):11.2f}x"
        for n, rate in rates.together.items()
    ]
    return "\n".join([*lines, f"a quantum of {max(AT_ONCE)} sequences: {rates.quantum * 1e3:.0f} ms"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=MODEL, help="a causal_lm entry of the catalogue")
    parser.add_argument("--new-tokens", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--store", type=Path, default=None, help="where converted weights are kept")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    spec, _ = catalog.load([CATALOG]).resolve(arguments.model)
    store = arguments.store or config.load().store
    path = Sources(store, online=False, hub_endpoint=None, hub_token=None).locate(spec)
    rates = measure(spec, path, arguments.new_tokens, arguments.rounds)
    print(table(rates))
    return 1 if rates.missed() else 0


if __name__ == "__main__":
    sys.exit(main())
