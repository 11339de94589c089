"""An adapter as PEFT stores it: adapter_config.json and adapter_model.safetensors. Read from headers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from engine.adapters.forward import weights
from engine.adapters.forward.weights import BadWeights, Stored
from engine.adapters.lora import said
from engine.adapters.lora.layers import Instead, LowRank, Part

_PREFIX = "base_model.model."
_DOWN, _UP = ".lora_A.weight", ".lora_B.weight"
_MAX_COMPARED = 4_000_000
"""Layers of a file times keys of its patterns."""


@dataclass(frozen=True, slots=True)
class StoredPart:
    """What the file holds of one layer: `lora_A.weight` and `lora_B.weight`, or `weight` and `bias`."""

    tensors: Mapping[str, Stored]
    scaling: float

    def load(self, dtype: torch.dtype, device: torch.device) -> Part:
        found = finite(self.tensors, dtype, device)
        if "lora_A.weight" in found:
            return LowRank(found["lora_A.weight"], found["lora_B.weight"], self.scaling)
        return Instead(found["weight"], found.get("bias"))

    @property
    def low_rank(self) -> bool:
        return "lora_A.weight" in self.tensors

    @property
    def linear(self) -> tuple[int, ...] | None:
        """The shape (out, in) of the layer that it is for; None: it is for another kind."""
        if self.low_rank:
            return self.tensors["lora_B.weight"].shape[0], self.tensors["lora_A.weight"].shape[1]
        return self.tensors["weight"].shape

    @property
    def wide(self) -> int:
        """Numbers that a row of it takes while it runs."""
        return sum(sum(stored.shape) for stored in self.tensors.values())


@dataclass(frozen=True, slots=True)
class StoredAdapter:
    """By the name of a layer in the model that it was trained on, its part."""

    parts: Mapping[str, StoredPart]

    def nbytes(self, dtype: torch.dtype) -> int:
        return sum(t.nbytes(dtype) for part in self.parts.values() for t in part.tensors.values())

    @property
    def wide(self) -> int:
        return max(part.wide for part in self.parts.values())


def read(path: Path) -> StoredAdapter:
    """Raises BadWeights for what is no adapter in this form, naming what it has that cannot be served."""
    config = said.read(path)
    file = path / "adapter_model.safetensors"
    if not file.is_file():
        raise BadWeights(f"{path} holds no adapter_model.safetensors; pickles are not read")
    layers: dict[str, dict[str, Stored]] = {}
    for name, stored in weights.stored_in(file).items():
        layer, key = _split(name, file)
        if key in layers.setdefault(layer, {}):
            raise BadWeights(f"{file} holds {key} of {layer} twice; which is meant cannot be told")
        numbers(name, stored)
        layers[layer][key] = stored
    if not layers:
        raise BadWeights(f"{file} holds no tensors")
    keys = [*(config.rank_pattern or ()), *(config.alpha_pattern or ())]
    if len(layers) * sum(key.count("|") + 1 for key in keys) > _MAX_COMPARED:
        raise BadWeights(
            f"{path}: rank_pattern and alpha_pattern have too many keys for {len(layers)} layers"
        )
    ranks, alphas = said.patterns(path, config.rank_pattern), said.patterns(path, config.alpha_pattern)

    def part(layer: str, tensors: Mapping[str, Stored]) -> StoredPart:
        rank, alpha = said.of(layer, ranks, config.r), said.of(layer, alphas, config.lora_alpha)
        return _part(layer, tensors, int(rank), alpha, rooted=bool(config.use_rslora), file=file)

    return StoredAdapter({layer: part(layer, tensors) for layer, tensors in layers.items()})


def numbers(name: str, stored: Stored) -> None:
    """Raises BadWeights for what cannot be weights of a layer."""
    if not stored.dtype.is_floating_point:
        raise BadWeights(
            f"{stored.file}: {name} holds {stored.dtype}, and weights are floating-point numbers"
        )
    if 0 in stored.shape:
        raise BadWeights(f"{stored.file}: {name} has the shape {stored.shape}, which no layer has")


def finite(tensors: Mapping[str, Stored], dtype: torch.dtype, device: torch.device) -> dict[str, Tensor]:
    """Raises BadWeights where some number is NaN or infinite, or is so in `dtype`."""
    found = weights.read(tensors, dtype)
    for key, tensor in found.items():
        if not torch.isfinite(tensor).all():
            raise BadWeights(f"{tensors[key].file}: {key} of a layer holds NaN or infinity as {dtype}")
    return {key: tensor.to(device) for key, tensor in found.items()}


def _split(name: str, file: Path) -> tuple[str, str]:
    """The layer that a tensor belongs to, and which of its tensors it is."""
    bare = name.removeprefix(_PREFIX)
    for ending in (_DOWN, _UP):
        if bare.endswith(ending):
            return bare.removesuffix(ending), ending[1:]
    layer, _, key = bare.replace(".modules_to_save.default", "").rpartition(".")
    if "lora_" in bare or key not in ("weight", "bias"):
        raise BadWeights(f"{file}: {name} is of a kind that cannot be served (embeddings, bias, magnitudes)")
    return layer, key


def _part(
    layer: str, tensors: Mapping[str, Stored], rank: int, alpha: float, *, rooted: bool, file: Path
) -> StoredPart:
    """`rooted`: scaled by the root of the rank."""
    down, up = tensors.get("lora_A.weight"), tensors.get("lora_B.weight")
    if down is None and up is None:
        _check_whole(layer, tensors, file)
        return StoredPart(tensors, 1.0)
    pair = len(tensors) == 2 and down is not None and up is not None
    if not pair or down is None or up is None or not product(down, up):
        raise BadWeights(f"{file}: the matrices of {layer} do not make a product")
    if down.shape[0] != rank:
        raise BadWeights(f"{file}: {layer} has rank {down.shape[0]}, and adapter_config.json says {rank}")
    return StoredPart(tensors, alpha / (math.sqrt(rank) if rooted else rank))


def product(down: Stored, up: Stored) -> bool:
    return len(down.shape) == len(up.shape) == 2 and down.shape[0] == up.shape[1]


def _check_whole(layer: str, tensors: Mapping[str, Stored], file: Path) -> None:
    weight, bias = tensors.get("weight"), tensors.get("bias")
    if weight is None or len(weight.shape) != 2:
        raise BadWeights(f"{file}: {layer} was saved whole and is no linear layer; it cannot be served")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise BadWeights(f"{file}: the bias of {layer} has the shape {bias.shape}, its weight {weight.shape}")
