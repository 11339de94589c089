"""Linear layers whose weights lie in memory as oneDNN's kernels want them: for CPUs only.

A plain linear layer rearranges its weight on every call, which is most of its time when there are few
rows. Measured on one AVX-512 core, 1536 x 576, float32: 48 -> 81 GFLOP/s with 16 rows, 81 -> 101
with 64, 100 -> 111 with 1024. The rearranged weight takes the place of the other one.
"""

from __future__ import annotations

from collections import Counter
from typing import cast

import torch
from torch import Tensor, nn

from engine.devices.host import trim

ROWS = 16
"""Rows for which oneDNN chooses the layout. It chose the same one for 16 and for 1024."""

SLACK_BYTES = 1 << 25
"""How much `pack` may hold twice."""


class PackedLinear(nn.Module):
    """Does what the layer it is made of does, up to rounding. For inference; has no `weight`."""

    weight = None
    """T5 asks for its type, and takes none."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = layer.in_features, layer.out_features
        # A plain attribute: what walks parameters (saving, moving, counting) cannot handle this layout.
        packed = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach(), ROWS)
        self._weight: Tensor | None = packed
        self._bias: Tensor | None = None if layer.bias is None else layer.bias.detach()
        self.values = sum(parameter.numel() for parameter in layer.parameters())
        """How many numbers it holds."""

    def forward(self, rows: Tensor) -> Tensor:
        out = torch.ops.mkldnn._linear_pointwise(rows, self._weight, self._bias, "none", [], "")
        return cast(Tensor, out)

    def release(self) -> None:
        """Give back the weight, though references to the layer may remain."""
        self._weight = self._bias = None


def pack(model: nn.Module) -> None:
    """Replace the float32 linear layers of a model on a CPU, but those that share their weight.

    A shared weight (an output head tied to the embedding) would be held twice.
    """
    if not torch.backends.mkldnn.is_available():
        return
    holders = Counter(id(weight) for weight in _weights(model))
    freed = 0
    # Not the layers themselves: they are to be forgotten one by one.
    for parent in [module for module in model.modules() if type(module) is not nn.Linear]:
        for name, layer in list(parent.named_children()):
            if type(layer) is not nn.Linear or holders[id(layer.weight)] > 1 or not _suits(layer.weight):
                continue
            setattr(parent, name, PackedLinear(layer))
            freed += layer.weight.nbytes
        # The allocator keeps what is freed beside what is not: unasked, all would be held twice.
        if freed >= SLACK_BYTES:
            trim()
            freed = 0
    trim()


def release(model: nn.Module) -> None:
    """Give back what `pack` made."""
    for layer in model.modules():
        if isinstance(layer, PackedLinear):
            layer.release()


def _suits(weight: Tensor) -> bool:
    return weight.dtype is torch.float32 and weight.device.type == "cpu"


def _weights(model: nn.Module) -> list[Tensor]:
    return [weight for module in model.modules() for weight in module.parameters(recurse=False)]
