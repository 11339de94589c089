"""An encoder compiled by TorchInductor, once for batches of all shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from engine.adapters.forward.packing import Layout, buckets
from engine.adapters.quick import grids
from engine.adapters.quick.grids import Grid
from engine.adapters.quick.steps import Inputs, Run, filled

BUDGET = 16384
"""Tokens of one pass, as on a card without compiling."""


class Compiled:
    """Compiles when it is first run on one row, and on several: `loading.prove` does so."""

    def __init__(self, forward: Callable[..., Any]) -> None:
        # By itself the limit of recompilations counts those of all models of one architecture together.
        make: Any = torch.compile  # its overloads do not know the last of these
        self.compiled: Run = make(filled(forward), dynamic=True, isolate_recompiles=True)

    def split(self, layout: Layout) -> Sequence[tuple[slice, Grid]]:
        found = buckets(layout.lengths, BUDGET)
        return [(places, grids.aligned(layout.lengths[places])) for places in found]

    def run(self, grid: Grid, inputs: Inputs) -> Tensor:
        return self.compiled(inputs)

    def close(self) -> None:
        """Compiled code holds no memory of a device."""
