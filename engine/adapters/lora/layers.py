"""A layer that some of its rows pass with an adapter (Hu et al. 2021, arXiv:2106.09685)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, linear

from engine.adapters.lora.rows import shares


@dataclass(frozen=True, slots=True)
class LowRank:
    """`up` (out, r) times `down` (r, in), times `scaling`, is added to the weight."""

    down: Tensor
    up: Tensor
    scaling: float

    def added(self, rows: Tensor) -> Tensor:
        return linear(linear(rows, self.down), self.up) * self.scaling

    def chosen(self, rows: Tensor, places: Tensor) -> Tensor:
        """For some of the rows, counted as they lie."""
        return self.added(rows.reshape(-1, rows.shape[-1]).index_select(0, places))

    def tensors(self) -> tuple[Tensor, ...]:
        return self.down, self.up


@dataclass(frozen=True, slots=True)
class LookedUp:
    """A row of `table` (vocabulary, r) times `up` (hidden, r), times `scaling`, is added to an embedding."""

    table: Tensor
    up: Tensor
    scaling: float

    def added(self, ids: Tensor) -> Tensor:
        return linear(embedding(ids, self.table), self.up) * self.scaling

    def chosen(self, ids: Tensor, places: Tensor) -> Tensor:
        """For some of the ids, counted as they lie."""
        return self.added(ids.reshape(-1).index_select(0, places))

    def tensors(self) -> tuple[Tensor, ...]:
        return self.table, self.up


@dataclass(frozen=True, slots=True)
class Instead:
    """A layer that was trained whole and stands in the place of the base's."""

    weight: Tensor
    bias: Tensor | None

    def tensors(self) -> tuple[Tensor, ...]:
        return (self.weight,) if self.bias is None else (self.weight, self.bias)


Part = LowRank | LookedUp | Instead


class Adapted(nn.Module):
    """The base's layer, and by adapter what that changes of it. Threads may share it."""

    def __init__(self, base: nn.Module) -> None:
        super().__init__()
        self.base = base
        self.parts: dict[str, Part] = {}

    def forward(self, rows: Tensor) -> Tensor:
        out = cast(Tensor, self.base(rows))
        for share in shares():
            part = self.parts.get(share.adapter)
            if part is None:
                continue
            if isinstance(part, Instead):
                out = linear(rows, part.weight, part.bias)
            elif share.rows is None:
                out = out + part.added(rows)
            else:
                width = out.shape[-1]
                added = part.chosen(rows, share.rows).to(out.dtype)
                out = torch.index_add(out.reshape(-1, width), 0, share.rows, added).view(out.shape)
        return out
