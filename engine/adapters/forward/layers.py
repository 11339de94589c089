"""Trained layers behind an encoder: projections of tokens, and what comes after pooling."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import layer_norm, linear

from engine.adapters.forward import weights
from engine.adapters.forward.weights import BadWeights, Stored
from engine.adapters.preparing.routes import Layer, Route

ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "GELU": torch.nn.functional.gelu,
    "Identity": lambda rows: rows,
    "ReLU": torch.relu,
    "SiLU": torch.nn.functional.silu,
    "Sigmoid": torch.sigmoid,
    "Tanh": torch.tanh,
}
"""By the name of their class in torch.nn, as configurations have it."""
WEIGHT = "weight"
NORM_EPSILON = 1e-5


@dataclass(frozen=True, slots=True)
class Held:
    """One layer and its tensors."""

    layer: Layer
    tensors: Mapping[str, Tensor]

    def __call__(self, rows: Tensor) -> Tensor:
        found = self.tensors
        if self.layer.kind == "layer_norm":
            size = (rows.shape[-1],)
            return layer_norm(rows, size, found["weight"], found["bias"], NORM_EPSILON)
        made = ACTIVATIONS[self.layer.activation](linear(rows, found[WEIGHT], found.get("bias")))
        if not self.layer.residual:
            return made
        skip = found.get("residual")
        return made + (rows if skip is None else linear(rows, skip))


def load(layers: Sequence[Layer], device: str, dtype: torch.dtype) -> tuple[Held, ...]:
    """Raises BadWeights for a layer that cannot be run as it is."""
    return tuple(_load(layer, device, dtype) for layer in layers)


def _load(layer: Layer, device: str, dtype: torch.dtype) -> Held:
    if layer.activation not in ACTIVATIONS:
        raise BadWeights(f"{layer.path} wants {layer.activation}; there are: {', '.join(ACTIVATIONS)}")
    found = {name: tensor.to(device) for name, tensor in weights.read(stored(layer), dtype).items()}
    if WEIGHT not in found:
        raise BadWeights(f"{layer.path}/{layer.file} holds no {layer.prefix}{WEIGHT}")
    return Held(layer, found)


def apply(layers: Sequence[Held], rows: Tensor) -> Tensor:
    for layer in layers:
        rows = layer(rows)
    return rows


def stored(layer: Layer) -> dict[str, Stored]:
    """The layer's tensors: weight, bias, residual. Its file may hold a whole encoder besides."""
    found = weights.stored_in(layer.path / layer.file)
    names = {f"{layer.prefix}{WEIGHT}": WEIGHT, f"{layer.prefix}bias": "bias", "residual.weight": "residual"}
    return {names[name]: entry for name, entry in found.items() if name in names}


def projections(route: Route) -> tuple[Layer, ...]:
    """Of each token's vector; where the directory lists no modules, what lies in it as Stanford's does."""
    if route.projections:
        return route.projections
    for folder in (route.path, route.path / "1_Dense"):
        file = folder / "model.safetensors"
        if file.is_file() and f"linear.{WEIGHT}" in weights.stored_in(file):
            return (Layer("dense", folder),)
    return ()


def width(layers: Sequence[Layer], rows: int) -> int:
    """What vectors of `rows` numbers have after these layers."""
    for layer in layers:
        if layer.kind == "dense":
            rows = stored(layer)[WEIGHT].shape[0]
    return rows
