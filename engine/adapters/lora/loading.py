"""An entry's adapters beside its base: what they take, who reads with which, and the model that has them."""

from __future__ import annotations

import logging
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
    known, _ = _known(spec, locate)
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
    return Footprint(_read(spec, name, locate).nbytes(dtype))


def preparer(made: Preparer, spec: ModelSpec, locate: Locate) -> Preparer:
    return Marking(made, _known(spec, locate)[1])


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
        return _read(spec, name, locate)

    if isinstance(model, GenerativeModel):
        return AdaptedGenerator(model, Residents(network, read, dtype, only_deep=True))
    if roles(spec) and network.config.model_type not in PACKED:
        raise weights.BadWeights(f"{spec.id} has an adapter for a role, which only packed families can have")
    deep = bool(getattr(model, "only_deep", False)) or bool(roles(spec))
    return AdaptedModel(model, network, Residents(network, read, dtype, only_deep=deep))


def _read(spec: ModelSpec, name: str, locate: Locate) -> StoredAdapter:
    """Raises InvalidInput for one that cannot be served, and why its files cannot be had."""
    place = spec.model_copy(update={"id": f"{spec.id}:{name}", "sources": spec.loras[name].sources})
    try:
        return _stored(locate(place), name)
    except (ValueError, OSError) as error:
        raise InvalidInput(f"The adapter {name} of {spec.id} cannot be served: {error}") from error


def _known(spec: ModelSpec, locate: Locate) -> tuple[dict[str, StoredAdapter], dict[str, EngineError]]:
    """What the entry's adapters hold, and why those that cannot be served cannot. The base is served
    without them."""
    known: dict[str, StoredAdapter] = {}
    wrong: dict[str, EngineError] = {}
    for name in spec.loras:
        try:
            known[name] = _read(spec, name, locate)
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
