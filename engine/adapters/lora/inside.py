"""Adapters that a checkpoint holds beside its own layers, each a slice of one tensor (jina-embeddings-v3).

As `modeling_lora.py` of `xlm-roberta-flash-implementation` makes them: besides linear layers they change
tables of embeddings (arXiv 2409.10173).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import torch

from engine.adapters.forward import dialects, weights
from engine.adapters.forward.weights import BadWeights, Stored
from engine.adapters.lora.layers import LookedUp, Part
from engine.adapters.lora.said import Alpha, Rank
from engine.adapters.lora.stored import StoredAdapter, StoredPart, finite, numbers, product

_BESIDE = ".parametrizations.weight.0."
"""Between the name of a layer and that of its adapters' tensor."""


@dataclass(frozen=True, slots=True)
class StoredLookup(StoredPart):
    """`table` (vocabulary, r) and `up` (r, hidden) of an embedding."""

    def load(self, dtype: torch.dtype, device: torch.device) -> Part:
        found = finite(self.tensors, dtype, device)
        return LookedUp(found["table"], found["up"].t().contiguous(), self.scaling)

    @property
    def low_rank(self) -> bool:
        return True

    @property
    def linear(self) -> None:
        return None

    @property
    def wide(self) -> int:
        return sum(self.tensors["up"].shape)


class _Said(msgspec.Struct, frozen=True):
    """What config.json says of them."""

    model_type: str
    lora_adaptations: list[str]
    lora_alpha: Alpha = 1.0
    lora_rank: Rank = 4


def holds(path: Path) -> bool:
    """Whether the model directory says that there are such adapters. Raises BadWeights for a broken one."""
    return (path / "config.json").is_file() and bool(_config(path).get("lora_adaptations"))


def _config(path: Path) -> dict[str, Any]:
    try:
        return weights.model_config(path)
    except (AttributeError, TypeError, RecursionError) as error:
        raise BadWeights(f"{path}/config.json is not what a model is configured by: {error}") from error


def read(path: Path, name: str) -> StoredAdapter:
    """The adapter `name`, from headers alone. Raises BadWeights when it is not there."""
    try:
        config = msgspec.convert(_config(path), _Said)
    except msgspec.ValidationError as error:
        raise BadWeights(f"{path}/config.json says of its adapters what cannot be: {error}") from error
    names = config.lora_adaptations
    if name not in names:
        raise BadWeights(f"{path} holds no adapter {name}; it holds: {', '.join(names)}")
    found = weights.stored_tensors(path, without=("pooler",))  # no vector here is made of that
    parts: dict[str, StoredPart] = {}
    for tensor, every in found.items():
        layer, down, rest = tensor.partition(f"{_BESIDE}lora_A")
        if not down or rest:
            continue
        other = found.get(f"{layer}{_BESIDE}lora_B")
        if other is None:
            raise BadWeights(f"{path} holds lora_A of {layer} and no lora_B")
        for each in (every, other):
            numbers(layer, each)
            if len(each.shape) != 3 or each.shape[0] != len(names):
                raise BadWeights(f"{path}: adapters of {layer} have the shape {each.shape}, for {len(names)}")
        pair = (_at(each, names.index(name)) for each in (every, other))
        parts |= _parts(config, layer, *pair)
    if not parts:
        raise BadWeights(f"{path} holds no matrices of its adapters")
    return StoredAdapter(parts)


def _parts(config: _Said, layer: str, first: Stored, second: Stored) -> dict[str, StoredPart]:
    scaling, table = config.lora_alpha / config.lora_rank, "embeddings" in layer.split(".")
    if not (product(second, first) if table else product(first, second)):
        raise BadWeights(f"{first.file}: the matrices of {layer} do not make a product")
    if second.shape[0 if table else 1] != config.lora_rank:
        raise BadWeights(f"{first.file}: {layer} has another rank than the {config.lora_rank} of config.json")
    if table:
        return {layer: StoredLookup({"table": first, "up": second}, scaling)}
    here = dialects.layers(config.model_type, layer)
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
