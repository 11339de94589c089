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
from engine.adapters.lora import stored
from engine.adapters.lora.residents import Residents
from engine.adapters.lora.serving import AdaptedGenerator, AdaptedModel, marked
from engine.adapters.lora.stored import StoredAdapter
from engine.adapters.preparing.cutting import Cutter
from engine.catalog import ModelSpec
from engine.errors import EngineError, InvalidInput
from engine.requests import Item, Options, Task

log = logging.getLogger(__name__)

CHUNK, RUNNING = 512, 16
"""What a generator takes in a step where its entry says nothing else: prompt tokens, and sequences."""

Locate = Callable[[ModelSpec], Path]


@runtime_checkable
class Adaptable(Protocol):
    """A model that is one network: of the transformers library, or another that takes no adapters."""

    @property
    def network(self) -> object: ...


def footprint(taken: Footprint, spec: ModelSpec, path: Path, locate: Locate) -> Footprint:
    """What the base takes, with the room for its adapters among its weights."""
    known, _ = _known(spec, locate)
    if not known:
        return taken
    itemsize = weights.dtype_on(weights.likely_device(spec.devices), spec.dtype, path).itemsize
    row = max(adapter.wide for adapter in known.values()) * itemsize
    generates, limits = Task.GENERATE in spec.tasks, spec.limits
    rows = (limits.max_batch_cost or CHUNK) + (limits.max_running or RUNNING) if generates else 0
    return replace(
        taken,
        weights_bytes=taken.weights_bytes + _room(spec, known, itemsize),
        workspace_base=taken.workspace_base + rows * row,
        workspace_per_cost=taken.workspace_per_cost + (0 if generates else row),
    )


def preparer(made: Preparer, spec: ModelSpec, locate: Locate) -> Preparer:
    return Marking(made, _known(spec, locate)[1])


def adapted(
    model: Model | GenerativeModel, spec: ModelSpec, path: Path, device: str, locate: Locate
) -> Model | GenerativeModel:
    """Raises BadWeights for a model that takes no adapters."""
    if not isinstance(model, Adaptable):
        raise weights.BadWeights(f"models of the family {spec.family} take no adapters")
    network = model.network
    if not isinstance(network, PreTrainedModel):
        raise weights.BadWeights("an ONNX graph takes no adapters; leave out the backend, or the loras")
    known, _ = _known(spec, locate)
    dtype = weights.dtype_on(device, spec.dtype, path)
    room = _room(spec, known, dtype.itemsize)
    if isinstance(model, GenerativeModel):
        return AdaptedGenerator(model, Residents(network, known, room, dtype, only_deep=True))
    deep = bool(getattr(model, "only_deep", False))
    return AdaptedModel(model, network, Residents(network, known, room, dtype, only_deep=deep))


def _known(spec: ModelSpec, locate: Locate) -> tuple[dict[str, StoredAdapter], dict[str, EngineError]]:
    """What the entry's adapters hold, and why those that cannot be served cannot. The base is served
    without them."""
    known: dict[str, StoredAdapter] = {}
    wrong: dict[str, EngineError] = {}
    for name, lora in spec.loras.items():
        try:
            place = spec.model_copy(update={"id": f"{spec.id}:{name}", "sources": lora.sources})
            known[name] = stored.read(locate(place))
        except EngineError as error:
            wrong[name] = error
        except (ValueError, OSError) as error:
            wrong[name] = InvalidInput(f"The adapter {name} of {spec.id} cannot be served: {error}")
            log.warning("the adapter %s of %s cannot be served: %s", name, spec.id, error)
    return known, wrong


def _room(spec: ModelSpec, known: Mapping[str, StoredAdapter], itemsize: int) -> int:
    """Bytes for adapters: for all of them, or what the entry says, but always for the largest."""
    sizes = [
        sum(t.numel * itemsize for part in adapter.parts.values() for t in part.tensors.values())
        for adapter in known.values()
    ]
    if spec.lora_room is None:
        return sum(sizes)
    return max([min(spec.lora_room, sum(sizes)), *sizes])


class Marking:
    """A preparer whose inputs know which adapter reads them."""

    def __init__(self, preparer: Preparer, wrong: Mapping[str, EngineError]) -> None:
        self._preparer = preparer
        self._wrong = wrong

    @property
    def cutter(self) -> Cutter:
        return cast(Cutting, self._preparer).cutter

    def prepare(self, task: Task, items: Sequence[Item], options: Options) -> list[Prepared | EngineError]:
        if options.lora is None:
            return self._preparer.prepare(task, items, options)
        if options.lora in self._wrong:
            raise self._wrong[options.lora]
        return marked(self._preparer.prepare(task, items, options), options.lora)
