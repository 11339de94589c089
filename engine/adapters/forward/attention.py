"""Attention inside each sequence of a packed row, for all families that ask transformers for attention."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface

from engine.adapters.forward.filled import Filled
from engine.adapters.forward.packing import Layout

NAME = "serai_packed"
"""What the function is called in transformers' interface."""
DISTANCES = 1 << 22
"""Numbers of a bias by distance that are held at once: for a long text it is made some rows at a time."""


def register() -> None:
    """Make the function known to transformers, which is needed before a model is set to it."""
    AttentionInterface.register(NAME, packed_attention)
    AttentionMaskInterface.register(NAME, _no_mask)


def _no_mask(*_: Any, **__: Any) -> None:
    """Attention inside each sequence is what the layout says; a mask would be tokens x tokens."""


def packed_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    packing: Layout | Filled,
    scaling: float | None = None,
    is_causal: bool | None = None,
    sliding_window: int | None = None,
    slopes: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention inside each sequence of one packed row.

    `query` is (1, heads, tokens, dim), the answer (1, tokens, heads, dim). `key` and `value` may have
    fewer heads. A window of w reaches w - 1 tokens to either side, as transformers passes it. `slopes`,
    (heads,): how much each head minds a step of distance, where the model has ALiBi.
    """
    causal = bool(is_causal if is_causal is not None else getattr(module, "is_causal", False))
    causal = causal and getattr(getattr(module, "config", None), "is_causal", True) is not False
    if isinstance(packing, Filled):
        if slopes is not None:
            raise ValueError("a filled batch has no attention by distance")
        return packing.attend(query, key, value, scaling, causal, sliding_window), None
    # (tokens, heads, dim): a run of equal lengths is then a view, whatever the strides
    queries, keys, values = (x[0].transpose(0, 1) for x in (query, key, value))
    halved = query.is_cuda and query.dtype in (torch.float16, torch.bfloat16) and query.shape[-1] % 8 == 0
    if halved and packing.seen is None and slopes is None:
        return _varlen(queries, keys, values, packing, scaling, causal, sliding_window)[None], None
    out = query.new_empty(query.shape[2], query.shape[1], value.shape[3])
    for segment in packing.segments:
        q, k, v = (segment.of(x).transpose(1, 2) for x in (queries, keys, values))
        unseen = packing.hidden(segment)
        if slopes is not None:
            attended = attend_by_distance(q, k, v, scaling, slopes, unseen)
        elif unseen is None:
            attended = attend(q, k, v, scaling, causal, sliding_window)
        else:
            attended = attend_in_part(q, k, v, scaling, causal, sliding_window, unseen)
        segment.of(out).copy_(attended.transpose(1, 2))
    return out[None], None


def attend(
    query: Tensor, key: Tensor, value: Tensor, scaling: float | None, causal: bool, window: int | None
) -> Tensor:
    """Attention of sequences of one length: (n, heads, length, dim) in and out."""
    length, gqa = query.shape[2], query.shape[1] != key.shape[1]
    if window is None or window >= length:
        return scaled_dot_product_attention(
            query, key, value, scale=scaling, is_causal=causal and length > 1, enable_gqa=gqa
        )
    # blocks of queries see only the keys in reach: memory and work grow with length x window
    out = query.new_empty(*query.shape[:3], value.shape[3])
    for begin in range(0, length, 2 * window):
        end = min(begin + 2 * window, length)
        near = slice(max(0, begin - window + 1), end if causal else min(length, end + window - 1))
        seen = _in_reach(begin, end, near, window, causal, query.device)
        out[:, :, begin:end] = scaled_dot_product_attention(
            query[:, :, begin:end],
            key[:, :, near],
            value[:, :, near],
            attn_mask=seen,
            scale=scaling,
            enable_gqa=gqa,
        )
    return out


def attend_in_part(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scaling: float | None,
    causal: bool,
    window: int | None,
    unseen: NDArray[np.bool_],
) -> Tensor:
    """`attend` where some tokens, (n, length), are seen by none. Short sequences: the mask is a square."""
    length = query.shape[2]
    seen = torch.from_numpy(~unseen).to(query.device)[:, None, None]
    if causal or window is not None:
        whole = slice(0, length)
        seen = seen & _in_reach(0, length, whole, window or length, causal, query.device)
    return scaled_dot_product_attention(
        query, key, value, attn_mask=seen, scale=scaling, enable_gqa=query.shape[1] != key.shape[1]
    )


def attend_by_distance(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scaling: float | None,
    slopes: Tensor,
    unseen: NDArray[np.bool_] | None,
) -> Tensor:
    """Attention to either side, less for what is far (ALiBi, arXiv 2108.12409): (n, heads, length, dim)."""
    heads, length = query.shape[1:3]
    masks = 1 if unseen is None else query.shape[0]
    step = max(1, DISTANCES // (masks * heads * length))
    places = torch.arange(length, device=query.device)
    out = query.new_empty(*query.shape[:3], value.shape[3])
    for begin in range(0, length, step):
        rows = slice(begin, begin + step)
        steps = (places[rows, None] - places[None]).abs()
        bias = (-slopes[:, None, None] * steps).to(query.dtype)[None]
        if unseen is not None:
            hidden = torch.from_numpy(unseen).to(query.device)[:, None, None]
            bias = bias.masked_fill(hidden, -torch.inf)
        out[:, :, rows] = scaled_dot_product_attention(
            query[:, :, rows], key, value, attn_mask=bias, scale=scaling
        )
    return out


def _in_reach(begin: int, end: int, keys: slice, window: int, causal: bool, device: torch.device) -> Tensor:
    ahead = torch.arange(begin, end, device=device)[:, None]
    ahead = ahead - torch.arange(keys.start, keys.stop, device=device)[None]
    return (ahead >= 0) & (ahead < window) if causal else ahead.abs() < window


def _varlen(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    packing: Layout,
    scaling: float | None,
    causal: bool,
    window: int | None,
) -> Tensor:
    """All sequences in one kernel: (tokens, heads, dim), half precision, CUDA."""
    from torch.nn.attention.varlen import varlen_attn

    reach = window - 1 if window else -1
    offsets, longest = packing.offsets(query.device), int(packing.lengths[-1])
    return cast(
        Tensor,
        varlen_attn(
            query.contiguous(),
            key.contiguous(),
            value.contiguous(),
            offsets,
            offsets,
            longest,
            longest,
            scale=scaling,
            window_size=(reach, 0 if causal else reach),
            enable_gqa=query.shape[1] != key.shape[1],
        ),
    )
