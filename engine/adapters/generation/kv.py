"""Keys and values of running sequences, and the attention that reads them without padding.

A sequence owns one tensor for all layers, allocated whole when it joins: what the ledger leased for
it is what it holds, and dropping the sequence gives it back. Rows of several sequences travel
through a model as one row of tokens (Orca's selective batching: only attention is per sequence).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import Module
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

NAME = "segmented_kv"


@dataclass(frozen=True, slots=True)
class Shape:
    """What one token's keys and values take in a model."""

    layers: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype

    @property
    def bytes_per_token(self) -> int:
        """2 (key and value) x layers x kv_heads x head_dim x bytes of an element."""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.dtype.itemsize


class Cache:
    """Keys and values of one sequence: (layers * 2, kv_heads, capacity, head_dim), key before value."""

    def __init__(self, shape: Shape, capacity: int, device: torch.device) -> None:
        size = (shape.layers * 2, shape.kv_heads, capacity, shape.head_dim)
        self._tensor = torch.empty(size, dtype=shape.dtype, device=device)
        self.length = 0
        """Tokens whose keys and values are in place."""

    @property
    def nbytes(self) -> int:
        return self._tensor.nbytes

    def between(self, first: int, end: int) -> tuple[Tensor, ...]:
        """Views (1, kv_heads, end - first, head_dim): key and value of layer 0, of layer 1, ..."""
        return self._tensor[:, None, :, first:end].unbind(0)


@dataclass(frozen=True, slots=True)
class Segment:
    """The next `count` tokens of one sequence, neighbours in the row of a step."""

    cache: Cache
    count: int
    reach: NDArray[np.int64] | None = None
    """The last token that each of them sees, none beyond these, where that is not itself for all."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What one segment attends to: views as `Cache.between` gives them, and who sees what."""

    views: tuple[Tensor, ...]
    length: int
    mask: Tensor | None
    causal: bool


class Step:
    """One forward pass over the next tokens of some sequences. Views are made once for all layers."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self.segments = segments
        self.counts = [segment.count for segment in segments]
        self._fresh = [s.cache.between(s.cache.length, s.cache.length + s.count) for s in segments]
        self._seen: dict[int | None, list[Seen]] = {}
        self._key_offsets: dict[int | None, Tensor] = {}
        self.ahead = any(segment.reach is not None for segment in segments)
        """Whether a token sees later ones, which no causal kernel does."""
        self.written = 0
        """Layers that stored their keys and values."""

    def positions(self) -> list[int]:
        """Where in its sequence each token of the row stands."""
        return [s.cache.length + i for s in self.segments for i in range(s.count)]

    def write(self, layer: int, key: Tensor, value: Tensor) -> None:
        """Store (1, kv_heads, tokens, head_dim) of all segments."""
        at = layer * 2
        targets = [views[at] for views in self._fresh] + [views[at + 1] for views in self._fresh]
        torch._foreach_copy_(targets, [*key.split(self.counts, 2), *value.split(self.counts, 2)])
        self.written += 1

    def seen(self, window: int | None) -> list[Seen]:
        """What each segment attends to in a layer whose tokens see the last `window`, themselves included."""
        if window not in self._seen:
            self._seen[window] = [_seen(segment, window) for segment in self.segments]
        return self._seen[window]

    def done(self) -> None:
        """The pass went through: its tokens are now part of their sequences."""
        for segment in self.segments:
            segment.cache.length += segment.count

    @cached_property
    def query_offsets(self) -> Tensor:
        """Where each segment's rows begin, and the end: (segments + 1,) int32."""
        return _offsets(self.counts, self._fresh[0][0].device)

    def key_offsets(self, window: int | None) -> Tensor:
        """The same for the keys that `seen(window)` lists."""
        if window not in self._key_offsets:
            lengths = [known.length for known in self.seen(window)]
            self._key_offsets[window] = _offsets(lengths, self._fresh[0][0].device)
        return self._key_offsets[window]


def _seen(segment: Segment, window: int | None) -> Seen:
    before, count = segment.cache.length, segment.count
    end = before + count
    first = max(0, before + 1 - window) if window else 0
    views = segment.cache.between(first, end)
    if segment.reach is None and count == 1:
        return Seen(views, end - first, None, False)
    if segment.reach is None and before == 0 and (window is None or count <= window):
        return Seen(views, end - first, None, True)
    if segment.reach is not None and before == 0 and segment.reach.min() == end - 1:
        return Seen(views, end, None, False)  # a prefix sees all of itself, whatever the window
    device = views[0].device
    mine = torch.arange(before, end, device=device)[:, None]
    other = torch.arange(first, end, device=device)[None]
    last = mine if segment.reach is None else torch.from_numpy(segment.reach).to(device)[:, None]
    mask = other <= last
    if window:
        mask &= other > mine - window
    return Seen(views, end - first, mask, False)


def attend(
    module: Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    step: Step,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **_: object,
) -> tuple[Tensor, None]:
    """transformers' attention interface: query (1, heads, tokens, dim) -> (1, tokens, heads, dim)."""
    layer = int(module.layer_idx)  # type: ignore[arg-type]
    step.write(layer, key, value)
    seen = step.seen(sliding_window)
    if softcap is not None:
        pairs = zip(query.split(step.counts, 2), seen, strict=True)
        return torch.cat([_capped(rows, known, layer, scaling, softcap) for rows, known in pairs], 1), None
    halved = query.is_cuda and query.dtype in (torch.float16, torch.bfloat16) and query.shape[-1] % 8 == 0
    if halved and not step.ahead:
        return _varlen(query, step, layer, scaling, sliding_window), None
    parts = [
        scaled_dot_product_attention(
            rows,
            known.views[layer * 2],
            known.views[layer * 2 + 1],
            attn_mask=known.mask,
            is_causal=known.causal,
            scale=scaling,
            enable_gqa=True,
        ).transpose(1, 2)
        for rows, known in zip(query.split(step.counts, 2), seen, strict=True)
    ]
    return torch.cat(parts, 1), None


def _capped(query: Tensor, seen: Seen, layer: int, scaling: float | None, softcap: float) -> Tensor:
    """One segment whose scores stay within +-`softcap`, as Gemma 2 has it; no fused kernel here does that."""
    groups = query.shape[1] // seen.views[layer * 2].shape[1]
    key, value = (seen.views[layer * 2 + each].repeat_interleave(groups, 1) for each in (0, 1))
    scores = query @ key.transpose(2, 3) * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    scores = torch.tanh(scores / softcap) * softcap
    mask = seen.mask
    if seen.causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    chances = torch.softmax(scores, -1, dtype=torch.float32).to(query.dtype)
    return (chances @ value).transpose(1, 2)


def _varlen(query: Tensor, step: Step, layer: int, scaling: float | None, window: int | None) -> Tensor:
    """All segments in one flash kernel. Its causal mask is aligned to the end of each segment's keys."""
    from torch.nn.attention.varlen import varlen_attn  # only CUDA builds can run it

    seen = step.seen(window)
    keys = torch.cat([known.views[layer * 2][0].transpose(0, 1) for known in seen])
    values = torch.cat([known.views[layer * 2 + 1][0].transpose(0, 1) for known in seen])
    out = varlen_attn(
        query[0].transpose(0, 1).contiguous(),
        keys,
        values,
        step.query_offsets,
        step.key_offsets(window),
        max(step.counts),
        max(known.length for known in seen),
        scale=scaling,
        window_size=(window - 1, 0) if window else (-1, 0),
        enable_gqa=True,
    )
    return cast(Tensor, out)[None]


def _offsets(lengths: Sequence[int], device: torch.device) -> Tensor:
    return torch.tensor([0, *lengths]).cumsum(0).to(device=device, dtype=torch.int32)


def register() -> None:
    """Let transformers' models be set to `NAME`. No mask is registered: `attend` makes its own."""
    AttentionInterface.register(NAME, attend)
