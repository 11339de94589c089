"""The adapters whose weights are on the base's device: never more bytes than the room set aside for them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from engine.adapters.forward.linear import PackedLinear
from engine.adapters.forward.weights import BadWeights
from engine.adapters.lora.layers import Adapted
from engine.adapters.lora.stored import StoredAdapter, StoredPart
from engine.errors import EngineError, InvalidInput, LoadFailed


class Residents:
    """Loads an adapter when it is first needed; the one used longest ago makes room. Threads share it."""

    def __init__(
        self,
        network: PreTrainedModel,
        known: Mapping[str, StoredAdapter],
        room: int,
        dtype: torch.dtype,
        *,
        only_deep: bool = False,
    ) -> None:
        """`only_deep`: others are refused, since the network's passes cannot serve them."""
        self._network = network
        self._known: dict[str, dict[str, StoredPart]] = {}
        self._wrong: dict[str, EngineError] = {}
        for name, adapter in known.items():
            try:
                self._known[name] = _renamed(network, name, adapter)
            except BadWeights as error:
                self._wrong[name] = InvalidInput(f"{error}. It cannot be served.")
        self._room = room
        self._dtype = dtype
        self._changed = threading.Condition()
        self._held: Counter[str] = Counter()
        self._here: dict[str, None] = {}
        """The one used longest ago first."""
        if only_deep:
            for name in [name for name in self._known if not self.deep(name)]:
                del self._known[name]
                self._wrong[name] = InvalidInput(
                    f"The adapter {name} changes more than the repeated layers; it cannot be served here."
                )
        self._layers = _wrapped(network, {layer for parts in self._known.values() for layer in parts})

    def deep(self, name: str) -> bool:
        """Whether all that it does is to add to repeated layers, where every row of a pass is a token."""
        parts = self._known.get(name, {})
        return all(part.low_rank and _repeated(self._network, layer) for layer, part in parts.items())

    def fitting(self, names: Collection[str]) -> Iterator[tuple[str, ...]]:
        """`names` in groups that fit the room."""
        group: list[str] = []
        for name in names:
            if group and self._bytes([*group, name]) > self._room:
                yield tuple(group)
                group = []
            group.append(name)
        if group:
            yield tuple(group)

    @contextmanager
    def held(self, names: Sequence[str]) -> Iterator[dict[str, EngineError]]:
        """Their weights are there, and stay; those that cannot be are told with their errors.

        Waits for other threads' batches; whoever waits holds none, so that nobody waits for ever.
        """
        with self._changed:
            while not self._has_room(names):
                self._changed.wait()
            failed = self._take(names)
        good = [name for name in names if name not in failed]
        try:
            yield failed
        finally:
            self.give_back(good)

    def take(self, name: str) -> bool | EngineError:
        """It is there and stays until it is given back; False while there is no room for it."""
        with self._changed:
            if not self._has_room([name]):
                return False
            return self._take([name]).get(name, True)

    def give_back(self, names: Sequence[str]) -> None:
        with self._changed:
            self._held.subtract(names)
            self._changed.notify_all()

    def clear(self) -> None:
        """Nothing is left of any."""
        with self._changed:
            for name in tuple(self._here):
                self._drop(name)

    def tensors(self) -> Mapping[str, Tensor]:
        return {
            f"{layer}.{name}.{number}": tensor
            for layer, module in self._layers.items()
            for name, part in module.parts.items()
            for number, tensor in enumerate(part.tensors())
        }

    def _bytes(self, names: Collection[str]) -> int:
        return sum(
            stored.nbytes(self._dtype)
            for name in names
            for part in self._known.get(name, {}).values()
            for stored in part.tensors.values()
        )

    def _has_room(self, names: Collection[str]) -> bool:
        kept = {name for name, count in self._held.items() if count > 0}
        return self._bytes(kept | {*names}) <= self._room

    def _take(self, names: Sequence[str]) -> dict[str, EngineError]:
        self._held.update(names)
        failed: dict[str, EngineError] = {}
        for name in names:
            try:
                self._bring(name)
            except EngineError as error:
                self._held[name] -= 1
                failed[name] = error
            except Exception as error:
                self._held[name] -= 1
                self._drop(name)
                text = f"The adapter {name} could not be loaded: {error}"[:500]
                failed[name] = LoadFailed(text, error_class=type(error).__name__, permanent=False)
        return failed

    def _bring(self, name: str) -> None:
        """Raises why it cannot be there."""
        if name not in self._known:
            raise self._wrong.get(name) or LoadFailed(
                f"The adapter {name} was not there when its base loaded."
            )
        if self._here.pop(name, "absent") == "absent":
            for other in [other for other in self._here if self._held[other] <= 0]:
                if self._bytes([*self._here, name]) <= self._room:
                    break
                self._drop(other)
            for layer, part in self._known[name].items():
                self._layers[layer].parts[name] = part.load(self._dtype, self._network.device)
        self._here[name] = None

    def _drop(self, name: str) -> None:
        self._here.pop(name, None)
        for layer in self._known[name]:
            self._layers[layer].parts.pop(name, None)


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
        _check(modules[here], name, layer, part)
        found[here] = part
    return found


def _check(module: nn.Module, name: str, layer: str, part: StoredPart) -> None:
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


def _wrapped(network: PreTrainedModel, layers: Collection[str]) -> dict[str, Adapted]:
    made: dict[str, Adapted] = {}
    for layer in sorted(layers):
        parent, _, child = layer.rpartition(".")
        made[layer] = Adapted(network.get_submodule(layer))
        setattr(network.get_submodule(parent), child, made[layer])
    return made


def _repeated(network: PreTrainedModel, layer: str) -> bool:
    """Whether it stands in a list of layers."""
    parents = layer.split(".")
    return any(
        isinstance(network.get_submodule(".".join(parents[:length])), nn.ModuleList)
        for length in range(1, len(parents))
    )
