"""A forward pass in float32 by a model whose weights have half of its bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

HALVES = (torch.float16, torch.bfloat16)


def holds_halves(tensors: Mapping[str, Tensor]) -> bool:
    return any(tensor.dtype in HALVES for tensor in tensors.values())


class InFloat32(TorchDispatchMode):
    """Inside it there is no half precision: what an operation is given of it is widened for that operation.

    float16 ends at 65,504, and models that were trained in bfloat16 or float32 pass that. Weights are
    widened one at a time and forgotten, so nothing is held twice, and only the thread that entered it
    is concerned. Slow: for a rare input, not for traffic.
    """

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        args, named = tree_map(_widened, (args, dict(kwargs or {})))
        return func(*args, **named)


def _widened(value: Any) -> Any:
    if isinstance(value, Tensor) and value.dtype in HALVES:
        return value.float()
    return torch.float32 if value in HALVES and isinstance(value, torch.dtype) else value
