"""Sequences of one packed row that are filled up to one length, so that only a tensor says who sees whom."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention


class Filled:
    """A packing of `seen` (rows, length): the tokens of each row that others attend to, at least one.

    Nothing of it is known outside of the device: what was recorded or compiled for a shape serves every batch
    of it.
    """

    def __init__(self, seen: Tensor) -> None:
        self.seen = seen

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        scaling: float | None,
        causal: bool,
        window: int | None,
    ) -> Tensor:
        """(1, heads, rows x length, dim) in, (1, rows x length, heads, dim) out."""
        rows, length = self.seen.shape
        # (rows, heads, length, dim)
        q, k, v = (each[0].unflatten(1, (rows, length)).transpose(0, 1) for each in (query, key, value))
        gqa = query.shape[1] != key.shape[1]
        mask = self._mask(causal, window)
        out = scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scaling, enable_gqa=gqa)
        return out.transpose(1, 2).flatten(0, 1)[None]

    def _mask(self, causal: bool, window: int | None) -> Tensor:
        seen = self.seen[:, None, None]
        if not causal and window is None:
            return seen
        places = torch.arange(self.seen.shape[1], device=seen.device)
        ahead = places[:, None] - places[None]
        near = ahead >= 0 if causal else ahead == ahead
        if window is not None:
            near = near & (ahead.abs() < window)
        # A filler that sees nothing would be no number, and no number times nothing is none either.
        return (seen & near) | (ahead == 0)
