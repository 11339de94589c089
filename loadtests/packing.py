"""How near packed execution comes to the speed of the matrix products alone, and what padding costs.

One thread, a model of MiniLM's shape with random weights, texts of lognormal lengths (median 30 tokens).
The four rates are taken in turns, a batch of each after the other, so that a busy machine slows all of
them alike. Run it as `python -m loadtests.packing`; it exits with 1 when the objective is missed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from transformers import BertConfig, BertModel

from engine.adapters.forward.linear import PackedLinear
from engine.adapters.forward.packed import Encoder, Ids

MEDIAN, SPREAD, LONGEST = 30, 0.8, 256
BATCH = 32
OBJECTIVE = 0.70
"""Packed tokens a second, as a share of the limit."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Real tokens a second."""

    padded: float
    by_length: float
    packed: float
    limit: float
    """If nothing but the model's linear layers were run, 1,024 tokens at a time."""
    largest_difference: float
    """Between a packed text and the same text alone."""


def texts(count: int, seed: int = 0) -> list[Ids]:
    rng = np.random.default_rng(seed)
    lengths = np.clip(np.exp(rng.normal(np.log(MEDIAN), SPREAD, count)), 4, LONGEST).astype(int)
    return [rng.integers(1000, 30000, n).astype(np.int32) for n in lengths]


def minilm() -> BertModel:
    torch.manual_seed(0)
    shape = BertConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536)
    return cast(BertModel, BertModel(shape, add_pooling_layer=False).eval())


def padded(model: BertModel, batch: Sequence[Ids]) -> None:
    longest = max(map(len, batch))
    grid, mask = np.zeros((len(batch), longest), np.int64), np.zeros((len(batch), longest), np.int64)
    for row, ids in enumerate(batch):
        grid[row, : len(ids)], mask[row, : len(ids)] = ids, 1
    model(input_ids=torch.from_numpy(grid), attention_mask=torch.from_numpy(mask))


def measure(seconds: float) -> Rates:
    """Takes about `seconds` for each of the four rates."""
    plain, laid_out = minilm(), minilm()
    encoder = Encoder(laid_out)
    arriving = texts(640)
    ascending = sorted(arriving, key=len)
    # The encoder's own layers, prepacked: the faster of the two ways to multiply is the limit.
    layers = [m for m in laid_out.modules() if isinstance(m, torch.nn.Linear | PackedLinear)]
    inputs = {size: torch.randn(1024, size) for size in {layer.in_features for layer in layers}}

    def products(_: Sequence[Ids]) -> None:
        for layer in layers:
            layer(inputs[layer.in_features])

    work: dict[str, tuple[Sequence[Ids], int, Callable[[Sequence[Ids]], object]]] = {
        "padded": (arriving, BATCH, lambda batch: padded(plain, batch)),
        "by_length": (ascending, BATCH, lambda batch: padded(plain, batch)),
        "packed": (arriving, BATCH, encoder.hidden),
        "limit": (arriving, BATCH, products),
    }
    tokens, spent = dict.fromkeys(work, 0), dict.fromkeys(work, 0.0)
    order = np.random.default_rng(1).permutation(len(arriving) // BATCH)
    with torch.inference_mode():
        difference = _difference(plain, encoder, arriving[:BATCH])
        turn = 0
        while turn < 2 or min(spent.values()) < seconds:
            place = int(order[turn % len(order)]) * BATCH
            for name, (source, size, run) in work.items():
                batch = source[place : place + size]
                began = time.perf_counter()
                run(batch)
                if turn:  # the first turn warms up
                    spent[name] += time.perf_counter() - began
                    tokens[name] += 1024 if name == "limit" else sum(map(len, batch))
            turn += 1
    return Rates(**{name: tokens[name] / spent[name] for name in work}, largest_difference=difference)


def _difference(plain: BertModel, encoder: Encoder, batch: Sequence[Ids]) -> float:
    hidden = encoder.hidden(batch)
    alone = [plain(input_ids=torch.from_numpy(ids).long()[None]).last_hidden_state[0] for ids in batch]
    return max(float((hidden.of(i) - states).abs().max()) for i, states in enumerate(alone))


def table(rates: Rates) -> str:
    rows = [
        ("padded, arrival order", rates.padded),
        ("padded, sorted by length", rates.by_length),
        ("packed", rates.packed),
        ("limit: matrix products alone", rates.limit),
    ]
    lines = [f"{'batches of ' + str(BATCH):30} {'tokens/s':>9} {'of limit':>9} {'of padded':>10}"]
    lines += [
        f"{name:30} {rate:9,.0f} {rate / rates.limit:9.2f} {rate / rates.padded:9.1f}x" for name, rate in rows
    ]
    return "\n".join([*lines, f"largest difference from a text alone: {rates.largest_difference:.1e}"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="for each of the four rates")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rates = measure(arguments.seconds)
    print(table(rates))
    return 0 if rates.packed >= OBJECTIVE * rates.limit else 1


if __name__ == "__main__":
    sys.exit(main())
