"""A loaded encoder on a card, made to run in the quicker way that its entry's backend names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cosine_similarity
from transformers import PreTrainedModel

from engine.adapters.family import Footprint, GenerativeModel, Model, Prepared
from engine.adapters.forward import weights
from engine.adapters.forward.exact import HALVES
from engine.adapters.forward.packed import PACKED, workspace_per_token
from engine.adapters.forward.packing import Layout
from engine.adapters.quick import grids
from engine.adapters.quick.compiled import Compiled
from engine.adapters.quick.graphs import CudaRecorder, Graphed
from engine.adapters.quick.steps import Run, Steps, Way, filled, on_grid
from engine.catalog import ModelSpec
from engine.errors import EngineError
from engine.requests import Output

ALIKE = 0.999
"""Least cosine of a token's vector to what the model gives without the way, in half precision."""
INPUT_BYTES = 3 * 8 + 1
"""Of a token: its id, position and type, and whether it is seen."""
PROBES = ([3, 7], [5])
"""Lengths of sequences: several rows and one are two things to a compiler."""


class Quickened:
    """A model with recordings, which hold its weights' addresses: it cannot be parked, only unloaded."""

    def __init__(self, model: Model, way: Way, dtype: torch.dtype) -> None:
        self._model = model
        self._way = way
        self.in_halves = dtype in HALVES

    def run(self, jobs: Sequence[Prepared]) -> Sequence[Output | EngineError]:
        return self._model.run(jobs)

    def unload(self) -> None:
        self._way.close()
        self._model.unload()


def quickened(
    model: Model | GenerativeModel, spec: ModelSpec, device: str
) -> Model | GenerativeModel | Quickened:
    """The model itself where it is not on a card. Raises BadWeights for one that has no quicker way."""
    if torch.device(device).type != "cuda":
        return model
    network = getattr(model, "network", None)
    if not isinstance(model, Model) or not isinstance(network, PreTrainedModel):
        raise weights.BadWeights(f"backend {spec.backend} is for models of one encoder")
    if network.config.model_type not in PACKED:
        raise weights.BadWeights(f"backend {spec.backend}: {network.config.model_type} does not run packed")
    if spec.loras:
        raise weights.BadWeights(f"backend {spec.backend} takes no adapters; leave out the loras")
    forward = network.base_model.forward
    if spec.backend == "torch-compiled":
        compiled = Compiled(forward)
        prove(forward, compiled.compiled, network.device)
        install(network, compiled)
        return model
    prove(forward, filled(forward), network.device)
    graphs = Graphed(forward, CudaRecorder(network.device))
    install(network, graphs)
    return Quickened(model, graphs, network.dtype)


def install(network: PreTrainedModel, way: Way) -> None:
    """From now on batches go that way, whoever calls the network's base."""
    base: Any = network.base_model
    base.forward = Steps(base.forward, way)


def prove(forward: Callable[..., Any], run: Run, device: torch.device) -> None:
    """Compiles what is to be compiled. Raises BadWeights where `run` does not do what `forward` does."""
    for lengths in PROBES:
        layout = Layout(lengths)
        positions = torch.from_numpy(layout.positions()).to(device)
        ids = torch.arange(1, layout.tokens + 1, device=device)
        try:
            with torch.inference_mode():
                expected = forward(
                    input_ids=ids[None], position_ids=positions[None], packing=layout
                ).last_hidden_state[0]
                found = on_grid(run, layout, grids.aligned(layout.lengths), ids, positions, None)
                alike = cosine_similarity(found.float(), expected.float(), dim=-1).min()
        except (RuntimeError, TypeError, ValueError) as error:
            raise weights.BadWeights(f"this model has no quicker way: {str(error)[:300]}") from error
        if not float(alike) >= ALIKE:
            raise weights.BadWeights(f"the quicker way changes vectors: cosine {float(alike):.4f}")


def footprint(taken: Footprint, spec: ModelSpec, path: Path) -> Footprint:
    """With what the recordings of all grids hold while the model is there, though most are never made."""
    device = weights.likely_device(spec.devices)
    if spec.backend != "torch-graphs" or device != "cuda":
        return taken
    config, itemsize = weights.model_config(path), weights.dtype_on(device, spec.dtype, path).itemsize
    return replace(taken, weights_bytes=taken.weights_bytes + recordings_bytes(config, itemsize))


def recordings_bytes(config: Mapping[str, Any], itemsize: int) -> int:
    """What each keeps for itself, and what all share: the intermediate values of the largest."""
    hidden = int(config.get("hidden_size") or config.get("dim") or config.get("d_model") or 768)
    kept = sum(grid.tokens for grid in grids.every()) * (hidden * itemsize + INPUT_BYTES)
    return int(kept + grids.MOST * workspace_per_token(config, itemsize))
