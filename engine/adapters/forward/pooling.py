"""One vector for a whole sequence, made of the vectors of its tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from engine.adapters.forward.packed import Hidden


def _weighted(block: Tensor) -> Tensor:
    places = torch.arange(1, block.shape[1] + 1, dtype=block.dtype, device=block.device)
    return torch.einsum("nld,l->nd", block, places / places.sum())


POOLINGS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "mean": lambda block: block.mean(1),
    "cls": lambda block: block[:, 0],
    "last": lambda block: block[:, -1],
    "max": lambda block: block.amax(1),
    "weighted": _weighted,  # by place from 1: SGPT, arXiv 2202.08904
}
"""Each takes (sequences, length, dim) and gives (sequences, dim)."""


def pool(hidden: Hidden, how: str) -> Tensor:
    """(sequences, dim), in the caller's order."""
    states, layout = hidden.states, hidden.layout
    pooled = states.new_empty(len(layout), states.shape[1])
    for segment in layout.segments:
        pooled[segment.first : segment.first + segment.count] = POOLINGS[how](segment.of(states))
    return layout.given(pooled)
