"""How many numbers a loaded model holds."""

from __future__ import annotations

from torch import nn

from engine.adapters.forward.linear import PackedLinear


def values(model: nn.Module) -> int:
    """Those in parameters, and those in layers that were prepacked out of them."""
    packed = sum(layer.values for layer in model.modules() if isinstance(layer, PackedLinear))
    return packed + sum(parameter.numel() for parameter in model.parameters())
