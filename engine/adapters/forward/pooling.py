"""One vector for a whole sequence, made of the vectors of its tokens."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from engine.adapters.forward.packed import Hidden


def _weighted(block: Tensor, skipped: int) -> Tensor:
    places = torch.arange(1, block.shape[1] + 1, dtype=block.dtype, device=block.device) + skipped
    return torch.einsum("nld,l->nd", block, places / places.sum())


POOLINGS: Mapping[str, Callable[[Tensor, int], Tensor]] = {
    "mean": lambda block, _: block.mean(1),
    "cls": lambda block, _: block[:, 0],
    "last": lambda block, _: block[:, -1],
    "max": lambda block, _: block.amax(1),
    "weighted": _weighted,  # by place from 1: SGPT, arXiv 2202.08904
    "mean_sqrt_len": lambda block, _: block.sum(1) / math.sqrt(block.shape[1]),
}
"""Each takes (sequences, length, dim), without so many first tokens, and gives (sequences, dim)."""


def known(how: str) -> bool:
    """Whether `how` is one of POOLINGS, or several joined by `+`."""
    return all(mode in POOLINGS for mode in how.split("+"))


def pool(hidden: Hidden, how: str, skipped: Sequence[int] | None = None) -> Tensor:
    """(sequences, dim), in the caller's order; several poolings joined by `+` side by side.

    `skipped`: how many first tokens of each sequence, in the caller's order, are left out.
    """
    modes = [POOLINGS[mode] for mode in how.split("+")]
    if skipped is not None and any(skipped):
        blocks = [hidden.of(index)[None, skip:] for index, skip in enumerate(skipped)]
        alone = [
            torch.cat([mode(block, skip) for mode in modes], -1)
            for block, skip in zip(blocks, skipped, strict=True)
        ]
        return torch.cat(alone)
    states, layout = hidden.states, hidden.layout
    pooled = states.new_empty(len(layout), states.shape[1] * len(modes))
    for segment in layout.segments:
        block = segment.of(states)
        whole = torch.cat([mode(block, 0) for mode in modes], -1)
        pooled[segment.first : segment.first + segment.count] = whole
    return layout.given(pooled)
