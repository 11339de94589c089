"""The adapters whose weights are on the base's device: whose they are is decided in `engine/memory`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from engine.adapters.forward.linear import PackedLinear
from engine.adapters.forward.weights import BadWeights
from engine.adapters.lora.inside import StoredLookup
from engine.adapters.lora.layers import Adapted
from engine.adapters.lora.stored import StoredAdapter, StoredPart
from engine.errors import InvalidInput


class Residents:
    """Adapters come and go while batches run that need others. Threads share it."""

    def __init__(
        self,
        network: PreTrainedModel,
        read: Callable[[str], StoredAdapter],
        dtype: torch.dtype,
        *,
        only_deep: bool = False,
    ) -> None:
        """`read` finds an adapter by its name. `only_deep`: others are refused, since the network's passes
        cannot serve them."""
        self._network = network
        self._read = read
        self._dtype = dtype
        self._only_deep = only_deep
        self._changing = threading.Lock()
        self._layers: dict[str, Adapted] = {}
        self._deep: dict[str, bool] = {}
        """Of those that are here."""

    def bring(self, name: str) -> None:
        """Its weights are on the network's device. Raises InvalidInput for one that cannot be served."""
        stored = self._read(name)
        with self._changing:
            try:
                found = _renamed(self._network, name, stored)
            except BadWeights as error:
                raise InvalidInput(f"{error}. It cannot be served.") from error
            deep = all(_deep(self._network, layer, part) for layer, part in found.items())
            if self._only_deep and not deep:
                raise InvalidInput(
                    f"The adapter {name} changes more than the repeated layers; it cannot be served here."
                )
        try:
            parts = {layer: part.load(self._dtype, self._network.device) for layer, part in found.items()}
        except (BadWeights, OSError) as error:
            raise InvalidInput(f"The adapter {name} cannot be served: {error}") from error
        with self._changing:
            for layer, part in parts.items():
                self._layer(layer).parts[name] = part
            self._deep[name] = deep

    def let_go(self, name: str) -> None:
        with self._changing:
            self._deep.pop(name, None)
            for layer in self._layers.values():
                layer.parts.pop(name, None)

    def deep(self, name: str) -> bool:
        """Whether all that it does is to add to repeated layers, where every row of a pass is a token. It
        must be here: the batch has a lease on it."""
        return self._deep[name]

    def clear(self) -> None:
        """Nothing is left of any."""
        for name in tuple(self._deep):
            self.let_go(name)

    def tensors(self) -> Mapping[str, Tensor]:
        return {
            f"{layer}.{name}.{number}": tensor
            for layer, module in self._layers.items()
            for name, part in module.parts.items()
            for number, tensor in enumerate(part.tensors())
        }

    def _layer(self, layer: str) -> Adapted:
        if layer not in self._layers:
            parent, _, child = layer.rpartition(".")
            made = self._layers[layer] = Adapted(self._network.get_submodule(layer))
            setattr(self._network.get_submodule(parent), child, made)
        return self._layers[layer]


def _renamed(network: PreTrainedModel, name: str, adapter: StoredAdapter) -> dict[str, StoredPart]:
    """Its parts by the names that layers have here: with or without the head's name for its base.

    A pooler that this model does without is left out. Raises BadWeights for a layer that is not here.
    """
    modules = dict(network.named_modules())
    prefix = network.base_model_prefix
    found: dict[str, StoredPart] = {}
    for layer, part in adapter.parts.items():
        names = (layer, f"{prefix}.{layer}", layer.removeprefix(f"{prefix}."))
        here = next((each for each in names if each in modules), None)
        if here is None:
            if "pooler" in layer.split("."):
                continue
            raise BadWeights(f"the adapter {name} changes {layer}, which the base does not have")
        if here in found:
            raise BadWeights(
                f"the adapter {name} changes {here} twice, by two names; which is meant is not said"
            )
        _check(modules[here], name, layer, part)
        found[here] = part
    return found


def _check(module: nn.Module, name: str, layer: str, part: StoredPart) -> None:
    if isinstance(part, StoredLookup):
        _check_table(module, name, layer, part)
        return
    if not isinstance(module, nn.Linear | PackedLinear | Adapted):
        raise BadWeights(
            f"the adapter {name} changes {layer}, a {type(module).__name__}; only linear layers can"
        )
    base = module.base if isinstance(module, Adapted) else module
    shapes = {key: stored.shape for key, stored in part.tensors.items()}
    shape = (int(cast(int, base.out_features)), int(cast(int, base.in_features)))
    low = (shapes["lora_B.weight"][0], shapes["lora_A.weight"][1]) if part.low_rank else None
    if (low or shapes.get("weight")) != shape:
        raise BadWeights(
            f"the adapter {name} was made for another {layer}: {shapes}, and the base has {shape}"
        )


def _check_table(module: nn.Module, name: str, layer: str, part: StoredLookup) -> None:
    table = module.base if isinstance(module, Adapted) else module
    shape = part.tensors["table"].shape[0], part.tensors["up"].shape[1]
    if not isinstance(table, nn.Embedding) or (table.num_embeddings, table.embedding_dim) != shape:
        raise BadWeights(f"the adapter {name} was made for another {layer}: a table of {shape}")


def _deep(network: PreTrainedModel, layer: str, part: StoredPart) -> bool:
    """Whether it only adds, and where every row is a token."""
    return part.low_rank and (isinstance(part, StoredLookup) or _repeated(network, layer))


def _repeated(network: PreTrainedModel, layer: str) -> bool:
    """Whether it stands in a list of layers."""
    parents = layer.split(".")
    return any(
        isinstance(network.get_submodule(".".join(parents[:length])), nn.ModuleList)
        for length in range(1, len(parents))
    )
