"""An adapter as PEFT stores it: adapter_config.json and adapter_model.safetensors. Read from headers."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from engine.adapters.forward import weights
from engine.adapters.forward.weights import BadWeights, Stored
from engine.adapters.lora.layers import Instead, LowRank, Part

_PREFIX = "base_model.model."
_DOWN, _UP = ".lora_A.weight", ".lora_B.weight"
_NEEDED = {"peft_type": "LORA", "bias": "none"}
_REFUSED = (
    "alora_invocation_tokens",
    "arrow_config",
    "corda_config",
    "fan_in_fan_out",
    "layer_replication",
    "lora_bias",
    "target_parameters",
    "trainable_token_indices",
    "use_bdlora",
    "use_dora",
    "use_qalora",
)
"""Keys of the configuration that, when set, change what the matrices mean."""


@dataclass(frozen=True, slots=True)
class StoredPart:
    """What the file holds of one layer: `lora_A.weight` and `lora_B.weight`, or `weight` and `bias`."""

    tensors: Mapping[str, Stored]
    scaling: float

    def load(self, dtype: torch.dtype, device: torch.device) -> Part:
        found = {key: t.to(device) for key, t in weights.read(self.tensors, dtype).items()}
        if "lora_A.weight" in found:
            return LowRank(found["lora_A.weight"], found["lora_B.weight"], self.scaling)
        return Instead(found["weight"], found.get("bias"))

    @property
    def low_rank(self) -> bool:
        return "lora_A.weight" in self.tensors

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
    config = _config(path)
    file = path / "adapter_model.safetensors"
    if not file.is_file():
        raise BadWeights(f"{path} holds no adapter_model.safetensors; pickles are not read")
    layers: dict[str, dict[str, Stored]] = {}
    for name, stored in weights.stored_in(file).items():
        layer, key = _split(name, file)
        layers.setdefault(layer, {})[key] = stored
    if not layers:
        raise BadWeights(f"{file} holds no tensors")
    return StoredAdapter({layer: _part(layer, tensors, config, file) for layer, tensors in layers.items()})


def _config(path: Path) -> dict[str, Any]:
    try:
        config: dict[str, Any] = json.loads((path / "adapter_config.json").read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise BadWeights(f"{path}/adapter_config.json cannot be read: {error}") from error
    for key, wanted in _NEEDED.items():
        if config.get(key) != wanted:
            raise BadWeights(f"{path}: {key} is {config.get(key)!r}; only {wanted!r} can be served")
    if wrong := [key for key in _REFUSED if config.get(key)]:
        raise BadWeights(f"{path}: adapters with {', '.join(wrong)} cannot be served")
    if not isinstance(config.get("r"), int) or not isinstance(config.get("lora_alpha"), int | float):
        raise BadWeights(f"{path}: adapter_config.json says no r and lora_alpha")
    return config


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


def _part(layer: str, tensors: Mapping[str, Stored], config: Mapping[str, Any], file: Path) -> StoredPart:
    down, up = tensors.get("lora_A.weight"), tensors.get("lora_B.weight")
    if down is None and up is None:
        if "weight" not in tensors or len(tensors["weight"].shape) != 2:
            raise BadWeights(f"{file}: {layer} was saved whole and is no linear layer; it cannot be served")
        return StoredPart(tensors, 1.0)
    pair = len(tensors) == 2 and down is not None and up is not None
    if not pair or down is None or up is None or len(down.shape) != 2 or down.shape[:1] != up.shape[1:]:
        raise BadWeights(f"{file}: the matrices of {layer} do not make a product")
    rank = down.shape[0]
    alpha = float(_of(layer, config.get("alpha_pattern") or {}, config["lora_alpha"]))
    said = _of(layer, config.get("rank_pattern") or {}, config["r"])
    if said != rank:
        raise BadWeights(f"{file}: {layer} has rank {rank}, and adapter_config.json says {said}")
    return StoredPart(tensors, alpha / (math.sqrt(rank) if config.get("use_rslora") else rank))


def _of(layer: str, patterns: Mapping[str, Any], otherwise: Any) -> Any:
    """As PEFT matches: a pattern is the end of a layer's name, from a dot on."""
    return next(
        (value for pattern, value in patterns.items() if re.match(rf"(.*\.)?({pattern})$", layer)), otherwise
    )
