"""A linear layer that some of its rows pass with an adapter (Hu et al. 2021, arXiv:2106.09685)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from engine.adapters.lora.rows import shares


@dataclass(frozen=True, slots=True)
class LowRank:
    """`up` (out, r) times `down` (r, in), times `scaling`, is added to the weight."""

    down: Tensor
    up: Tensor
    scaling: float

    def added(self, rows: Tensor) -> Tensor:
        return linear(linear(rows, self.down), self.up) * self.scaling

    def tensors(self) -> tuple[Tensor, ...]:
        return self.down, self.up


@dataclass(frozen=True, slots=True)
class Instead:
    """A layer that was trained whole and stands in the place of the base's."""

    weight: Tensor
    bias: Tensor | None

    def tensors(self) -> tuple[Tensor, ...]:
        return (self.weight,) if self.bias is None else (self.weight, self.bias)


Part = LowRank | Instead


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
                flat = rows.reshape(-1, rows.shape[-1])
                width = out.shape[-1]
                added = part.added(flat.index_select(0, share.rows)).to(out.dtype)
                out = torch.index_add(out.reshape(-1, width), 0, share.rows, added).view(out.shape)
        return out
