"""Adapters that a checkpoint holds beside its own layers, each a slice of one tensor (jina-embeddings-v3).

As `modeling_lora.py` of `xlm-roberta-flash-implementation` makes them: besides linear layers they change
tables of embeddings (arXiv 2409.10173).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from engine.adapters.forward import dialects, weights
from engine.adapters.forward.weights import BadWeights, Stored
from engine.adapters.lora.layers import LookedUp, Part
from engine.adapters.lora.stored import StoredAdapter, StoredPart

_BESIDE = ".parametrizations.weight.0."
"""Between the name of a layer and that of its adapters' tensor."""


@dataclass(frozen=True, slots=True)
class StoredLookup(StoredPart):
    """`table` (vocabulary, r) and `up` (r, hidden) of an embedding."""

    def load(self, dtype: torch.dtype, device: torch.device) -> Part:
        found = {key: t.to(device) for key, t in weights.read(self.tensors, dtype).items()}
        return LookedUp(found["table"], found["up"].t().contiguous(), self.scaling)

    @property
    def low_rank(self) -> bool:
        return True

    @property
    def wide(self) -> int:
        return sum(self.tensors["up"].shape)


def holds(path: Path) -> bool:
    """Whether the model directory says that there are such adapters."""
    return (path / "config.json").is_file() and bool(weights.model_config(path).get("lora_adaptations"))


def read(path: Path, name: str) -> StoredAdapter:
    """The adapter `name`, from headers alone. Raises BadWeights when it is not there."""
    config = weights.model_config(path)
    names = [str(each) for each in config["lora_adaptations"]]
    if name not in names:
        raise BadWeights(f"{path} holds no adapter {name}; it holds: {', '.join(names)}")
    scaling = float(config.get("lora_alpha", 1)) / int(config.get("lora_rank", 4))
    found = weights.stored_tensors(path, without=("pooler",))  # no vector here is made of that
    parts: dict[str, StoredPart] = {}
    for tensor, every in found.items():
        layer, down, _ = tensor.partition(f"{_BESIDE}lora_A")
        if down:
            other = _at(found[f"{layer}{_BESIDE}lora_B"], names.index(name))
            parts |= _parts(config["model_type"], layer, _at(every, names.index(name)), other, scaling)
    return StoredAdapter(parts)


def _parts(kind: str, layer: str, first: Stored, second: Stored, scaling: float) -> dict[str, StoredPart]:
    if "embeddings" in layer.split("."):
        return {layer: StoredLookup({"table": first, "up": second}, scaling)}
    here = dialects.layers(kind, layer)
    count = second.shape[0] // len(here)
    return {
        name: StoredPart(
            {"lora_A.weight": first, "lora_B.weight": _rows(second, place * count, count)}, scaling
        )
        for place, name in enumerate(here)
    }


def _at(stored: Stored, index: int) -> Stored:
    return replace(_rows(stored, index, 1), shape=stored.shape[1:])


def _rows(stored: Stored, first: int, count: int) -> Stored:
    row = math.prod(stored.shape[1:]) * stored.dtype.itemsize
    return replace(stored, shape=(count, *stored.shape[1:]), start=stored.start + first * row)
