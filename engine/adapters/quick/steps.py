"""What stands where the `forward` of a packed encoder stood: batches of few shapes, run in a quicker way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.utils._python_dispatch import is_in_torch_dispatch_mode
from transformers.modeling_outputs import BaseModelOutput

from engine.adapters.forward.filled import Filled
from engine.adapters.forward.packing import Layout
from engine.adapters.quick import grids
from engine.adapters.quick.grids import Grid


class Inputs(NamedTuple):
    """All (rows, length), on the device."""

    ids: Tensor
    positions: Tensor
    seen: Tensor
    types: Tensor | None


Run = Callable[[Inputs], Tensor]
"""(1, rows x length, dim)."""


class Way(Protocol):
    """How batches of few shapes are run."""

    def split(self, layout: Layout) -> Sequence[tuple[slice, Grid]]:
        """The grids for runs of laid sequences; none where the batch is to run as it is."""
        ...

    def run(self, grid: Grid, inputs: Inputs) -> Tensor:
        """(1, rows x length, dim), for the caller to keep."""
        ...

    def close(self) -> None:
        """Give back what it holds on the device."""
        ...


def filled(forward: Callable[..., Any]) -> Run:
    """The `forward` of an encoder's base on a grid, which is one packed row to it."""

    def run(inputs: Inputs) -> Tensor:
        more = {} if inputs.types is None else {"token_type_ids": inputs.types.reshape(1, -1)}
        states: Tensor = forward(
            input_ids=inputs.ids.reshape(1, -1),
            position_ids=inputs.positions.reshape(1, -1),
            packing=Filled(inputs.seen),
            **more,
        ).last_hidden_state
        return states

    return run


class Steps:
    """Called as the base's `forward` is. Threads may share it."""

    def __init__(self, forward: Callable[..., Any], way: Way) -> None:
        self._forward = forward
        self._way = way

    def __call__(
        self,
        *,
        input_ids: Tensor,
        position_ids: Tensor,
        packing: Layout,
        token_type_ids: Tensor | None = None,
        **more: Any,
    ) -> Any:
        # A mode that changes operations (`InFloat32`) must see each of them.
        parts = () if is_in_torch_dispatch_mode() else self._way.split(packing)
        if not parts:
            given = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
            return self._forward(
                input_ids=input_ids, position_ids=position_ids, packing=packing, **given, **more
            )
        found = []
        for laid, grid in parts:
            rows = slice(int(packing.starts[laid.start]), int(packing.ends[laid.stop - 1]))
            types = None if token_type_ids is None else token_type_ids[0, rows]
            part = packing.part(laid)
            run = partial(self._way.run, grid)
            found.append(on_grid(run, part, grid, input_ids[0, rows], position_ids[0, rows], types))
        states: Any = torch.cat(found)[None]
        return BaseModelOutput(last_hidden_state=states)


def on_grid(
    run: Run, layout: Layout, grid: Grid, ids: Tensor, positions: Tensor, types: Tensor | None
) -> Tensor:
    """(tokens, dim) of the flat rows of a layout."""
    at = torch.from_numpy(grids.places(layout, grid)).to(ids.device)
    seen = torch.from_numpy(grids.seen(layout, grid)).to(ids.device)
    inputs = Inputs(
        _spread(ids, at, grid),
        _spread(positions, at, grid),
        seen,
        None if types is None else _spread(types, at, grid),
    )
    return run(inputs)[0].index_select(0, at)


def _spread(values: Tensor, at: Tensor, grid: Grid) -> Tensor:
    """(tokens,) in their places; zeros elsewhere, which every vocabulary and every table of positions has."""
    empty = values.new_zeros(grid.tokens)
    return empty.index_copy_(0, at, values).view(grid.rows, grid.length)
