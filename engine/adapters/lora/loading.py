"""An entry's adapters beside its base: what they take, who reads with which, and the model that has them."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol, cast, runtime_checkable

from transformers import PreTrainedModel

from engine.adapters.family import Cutting, Footprint, GenerativeModel, Model, Prepared, Preparer
from engine.adapters.forward import weights
from engine.adapters.forward.packed import PACKED
from engine.adapters.lora import inside, stored
from engine.adapters.lora.residents import Residents
from engine.adapters.lora.serving import AdaptedGenerator, AdaptedModel, marked, named
from engine.adapters.lora.stored import StoredAdapter
from engine.adapters.preparing.cutting import Cutter
from engine.adapters.preparing.served import roles
from engine.catalog import ModelSpec
from engine.errors import EngineError, InvalidInput
from engine.requests import Item, Options, Task

log = logging.getLogger(__name__)

CHUNK, RUNNING = 512, 16
"""What a generator takes in a step where its entry says nothing else: prompt tokens, and sequences."""

Locate = Callable[[ModelSpec], Path]


@runtime_checkable
class OneNetwork(Protocol):
    """A model that is one network: of the transformers library, or another that takes no adapters."""

    @property
    def network(self) -> object: ...


def footprint(taken: Footprint, spec: ModelSpec, path: Path, locate: Locate) -> Footprint:
    """What the base takes, and its batches where some rows of them are read with an adapter."""
    known, _ = _known(spec, path, locate)
    if not known:
        return taken
    itemsize = weights.dtype_on(weights.likely_device(spec.devices), spec.dtype, path).itemsize
    row = max(adapter.wide for adapter in known.values()) * itemsize
    generates, limits = Task.GENERATE in spec.tasks, spec.limits
    rows = (limits.max_batch_cost or CHUNK) + (limits.max_running or RUNNING) if generates else 0
    return replace(
        taken,
        workspace_base=taken.workspace_base + rows * row,
        workspace_per_cost=taken.workspace_per_cost + (0 if generates else row),
    )


def adapter_footprint(spec: ModelSpec, name: str, path: Path, locate: Locate) -> Footprint:
    """Raises InvalidInput for one that cannot be served."""
    dtype = weights.dtype_on(weights.likely_device(spec.devices), spec.dtype, path)
    return Footprint(_read(spec, name, locate, _shapes(path)).nbytes(dtype))


def preparer(made: Preparer, spec: ModelSpec, path: Path, locate: Locate) -> Preparer:
    return Marking(made, _known(spec, path, locate)[1])


def adapted(
    model: Model | GenerativeModel, spec: ModelSpec, path: Path, device: str, locate: Locate
) -> Model | GenerativeModel:
    """Raises BadWeights for a model that takes no adapters."""
    if not isinstance(model, OneNetwork):
        raise weights.BadWeights(f"models of the family {spec.family} take no adapters")
    network = model.network
    if not isinstance(network, PreTrainedModel):
        raise weights.BadWeights("an ONNX graph takes no adapters; leave out the backend, or the loras")
    dtype = weights.dtype_on(device, spec.dtype, path)

    def read(name: str) -> StoredAdapter:
        return _read(spec, name, locate, {})  # the network itself says more than its files

    if isinstance(model, GenerativeModel):
        return AdaptedGenerator(model, Residents(network, read, dtype, only_deep=True))
    if roles(spec) and network.config.model_type not in PACKED:
        raise weights.BadWeights(f"{spec.id} has an adapter for a role, which only packed families can have")
    deep = bool(getattr(model, "only_deep", False)) or bool(roles(spec))
    return AdaptedModel(model, network, Residents(network, read, dtype, only_deep=deep))


Shapes = Mapping[str, tuple[int, ...]]
"""By the name of a layer, as the base's files have it."""


def _read(spec: ModelSpec, name: str, locate: Locate, shapes: Shapes) -> StoredAdapter:
    """Raises InvalidInput for one that cannot be served, and why its files cannot be had."""
    place = spec.model_copy(update={"id": f"{spec.id}:{name}", "sources": spec.loras[name].sources})
    try:
        found = _stored(locate(place), name)
        _compare(found, shapes)
        return found
    except (ValueError, OSError, RecursionError) as error:
        raise InvalidInput(f"The adapter {name} of {spec.id} cannot be served: {error}") from error


def _shapes(path: Path) -> Shapes:
    """Of linear layers, by their names and by those without the head's name for its base."""
    try:
        stored = weights.stored_tensors(path)
    except (ValueError, OSError):
        return {}  # a base that is stored in another way: the network says it when the adapter is brought
    found = {
        name.removesuffix(".weight"): each.shape
        for name, each in stored.items()
        if name.endswith(".weight") and len(each.shape) == 2 and each.dtype.is_floating_point
    }
    bare: dict[str, set[tuple[int, ...]]] = defaultdict(set)
    for name, shape in found.items():
        bare[name.partition(".")[2]].add(shape)
    return {name: next(iter(every)) for name, every in bare.items() if len(every) == 1} | found


def _compare(adapter: StoredAdapter, shapes: Shapes) -> None:
    """Raises BadWeights for one of another base, which is to take no room of this one's batches."""
    widest = max((max(shape) for shape in shapes.values()), default=None)
    for layer, part in adapter.parts.items():
        there = shapes.get(layer, shapes.get(layer.partition(".")[2]))
        if part.linear is None or widest is None:
            continue
        if max(part.linear) > widest or part.linear != (there or part.linear):
            has = f"none wider than {widest}" if there is None else str(there)
            raise weights.BadWeights(
                f"it was made for another {layer}, of {part.linear}, and the base has {has}"
            )


def _known(
    spec: ModelSpec, path: Path, locate: Locate
) -> tuple[dict[str, StoredAdapter], dict[str, EngineError]]:
    """What the entry's adapters hold, and why those that cannot be served cannot. The base is served
    without them."""
    known: dict[str, StoredAdapter] = {}
    wrong: dict[str, EngineError] = {}
    shapes = _shapes(path)
    for name in spec.loras:
        try:
            known[name] = _read(spec, name, locate, shapes)
        except EngineError as error:
            wrong[name] = error
            log.warning("%s", error)
    return known, wrong


def _stored(path: Path, name: str) -> StoredAdapter:
    """Of a directory as PEFT writes it, or of the base's own checkpoint where that holds it."""
    return inside.read(path, name) if inside.holds(path) else stored.read(path)


class Marking:
    """A preparer whose inputs know which adapter reads them."""

    def __init__(self, preparer: Preparer, wrong: Mapping[str, EngineError]) -> None:
        self._preparer = preparer
        self._wrong = wrong

    @property
    def cutter(self) -> Cutter:
        return cast(Cutting, self._preparer).cutter

    def prepare(self, task: Task, items: Sequence[Item], options: Options) -> list[Prepared | EngineError]:
        if options.lora is not None and options.lora in self._wrong:
            raise self._wrong[options.lora]
        found = self._preparer.prepare(task, items, options)
        return named(found if options.lora is None else marked(found, options.lora))
