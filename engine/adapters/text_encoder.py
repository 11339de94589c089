"""Text into vectors: dense, sparse and multivector, several from one forward pass; and their likeness.

Directories of sentence-transformers, PyLate, ColBERT and model2vec are served as they are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForTextEncoding, PreTrainedModel

from engine.adapters.family import Footprint, Prepared
from engine.adapters.forward import layers, onnx, table, weights
from engine.adapters.forward.packed import workspace_per_token
from engine.adapters.forward.quantize import quantize
from engine.adapters.forward.vectors import ACTIVATIONS, SPARSE_ROWS, Trained, Vectors
from engine.adapters.matching import Made, matched
from engine.adapters.preparing.routes import Directory, Route
from engine.adapters.preparing.served import encoders, served
from engine.adapters.preparing.text_jobs import (
    EncodeJob,
    MatchJob,
    TextPreparer,
    check_dims,
    check_similarity,
    fixed,
    hidden_size,
    outputs_of,
)
from engine.catalog import ModelSpec
from engine.errors import EngineError, NotFinite
from engine.requests import Encoded, Output, OutputType, Task

UNUSED = frozenset(["lora_A", "lora_B", "pooler", "position_ids"])
"""Tensors of checkpoints that no output here is made of; adapters among them are read on their own."""
LANGUAGE_HEADS = frozenset(
    [
        "cls",
        "generator_lm_head",
        "generator_predictions",
        "lm_head",
        "lm_predictions",
        "mask_predictions",
        "vocab_layer_norm",
        "vocab_projector",
        "vocab_transform",
    ]
)
"""And those that only sparse vectors are made of."""
HALVES = frozenset(["mt5", "t5", "umt5"])
"""Kinds of encoders that transformers takes for whole translators unless it is told otherwise."""
BASE_BYTES = 16 << 20
"""What a forward pass takes whatever its size: GEMM buffers and small change."""


class Transformer:
    """One transformer with what stands behind it."""

    def __init__(self, trained: Trained) -> None:
        self.trained = trained
        self._encoder = onnx.encoder(trained.model)

    def vectors(self, jobs: Sequence[EncodeJob]) -> Vectors:
        seen, adapters = [job.seen for job in jobs], [job.lora for job in jobs]
        hidden = self._encoder.hidden([job.ids for job in jobs], seen=seen, adapters=adapters)
        return Vectors(self.trained, hidden, jobs)


class TextEncoder:
    """By role, the transformer that reads its texts; most models have one for both."""

    def __init__(self, roles: Mapping[str, Transformer]) -> None:
        self._roles = dict(roles)

    def run(self, jobs: Sequence[Prepared]) -> Sequence[Output | EngineError]:
        payloads = [cast(EncodeJob | MatchJob, job.payload) for job in jobs]
        texts = {id(text): text for payload in payloads for text in _texts(payload)}
        with torch.inference_mode():
            made = self._made(list(texts.values()))
            scores = matched([payload for payload in payloads if isinstance(payload, MatchJob)], made)
        found = iter(scores)
        return [
            next(found) if isinstance(payload, MatchJob) else _answer(payload, made[id(payload)])
            for payload in payloads
        ]

    def _made(self, texts: Sequence[EncodeJob]) -> dict[int, Made]:
        """By the identity of each job, what was made of it. One pass for each transformer."""
        passes: dict[int, list[EncodeJob]] = defaultdict(list)
        made: dict[int, Made] = {}
        for text in texts:
            if text.looked_up is not None:
                made[id(text)] = {OutputType.SPARSE: text.looked_up}
                continue
            passes[id(self._roles[text.role])].append(text)
        transformers = {id(transformer): transformer for transformer in self._roles.values()}
        for number, group in passes.items():
            for text, found in zip(group, _outputs(transformers[number].vectors(group), group), strict=True):
                made[id(text)] = found
        return made

    @property
    def transformers(self) -> tuple[Transformer, ...]:
        """Each once."""
        return tuple({id(each): each for each in self._roles.values()}.values())

    @property
    def network(self) -> onnx.Network:
        """What adapters change. Raises BadWeights for a model of several networks, or of none."""
        first, *others = (each.trained.model for each in self.transformers)
        if others or isinstance(first, table.Table):
            raise weights.BadWeights("a model with two transformers, or with a table, takes no adapters")
        return first

    def tensors(self) -> Mapping[str, Tensor]:
        return {
            f"{number}.{name}": tensor
            for number, each in enumerate(self.transformers)
            for name, tensor in (weights.tensors(each.trained.model) | each.trained.tensors()).items()
        }

    def unload(self) -> None:
        transformers = self.transformers
        self._roles.clear()
        for each in transformers:
            weights.release(each.trained.model)


def _texts(payload: EncodeJob | MatchJob) -> Iterable[EncodeJob]:
    return (payload.query, payload.document) if isinstance(payload, MatchJob) else (payload,)


def _outputs(vectors: Vectors, jobs: Sequence[EncodeJob]) -> list[Made]:
    """What each job wants; those that are not finite are missing."""
    asking: dict[OutputType, list[int]] = defaultdict(list)
    for place, job in enumerate(jobs):
        for kind in job.wanted.outputs:
            asking[kind].append(place)
    found: list[Made] = [{} for _ in jobs]
    for place, dense in vectors.dense(asking[OutputType.DENSE]).items():
        found[place][OutputType.DENSE] = dense
    for place, sparse in vectors.sparse(asking[OutputType.SPARSE]).items():
        found[place][OutputType.SPARSE] = sparse
    for place in asking[OutputType.MULTIVECTOR]:
        found[place][OutputType.MULTIVECTOR] = vectors.tokens(place)
    return found


def _answer(job: EncodeJob, made: Made) -> Encoded | EngineError:
    parts: dict[str, Any] = {}
    for kind in job.wanted.outputs:
        found: Any = made.get(kind)
        if isinstance(found, Tensor):
            numbers = found.cpu().numpy()
            found = quantize(numbers, job.wanted.dtype) if np.isfinite(numbers).all() else None
        if found is None:
            return NotFinite()
        parts[kind.value] = found
    return Encoded(**parts)


class TextEncoderFamily:
    """Encoders, and decoders used as such, of the transformers library."""

    cost_unit: ClassVar[str] = "tokens"
    tasks: ClassVar[frozenset[Task]] = frozenset([Task.ENCODE, Task.SCORE])

    def footprint(self, spec: ModelSpec, path: Path) -> Footprint:
        stored = served(spec, path)
        check_similarity(stored)
        if spec.backend != "torch":
            check_dims(spec, _only_route(spec, stored, path))
            return onnx.footprint(spec, path)
        taken = [_footprint(spec, route) for route in encoders(stored)]
        return Footprint(
            sum(each.weights_bytes for each in taken),
            max((each.workspace_base for each in taken), default=BASE_BYTES),
            max((each.workspace_per_cost for each in taken), default=0.0),
        )

    def preparer(self, spec: ModelSpec, path: Path) -> TextPreparer:
        return TextPreparer(spec, path)

    def load(self, spec: ModelSpec, path: Path, device: str) -> TextEncoder | onnx.Whole:
        stored = served(spec, path)
        if spec.backend != "torch":
            return _loaded_graph(spec, stored, path, device)
        loaded = {route.path: _load(spec, route, device) for route in encoders(stored)}
        return TextEncoder(
            {role: loaded[route.path] for role, route in stored.routes.items() if not route.looked_up}
        )


def _loaded_graph(spec: ModelSpec, stored: Directory, path: Path, device: str) -> onnx.Whole:
    route = _only_route(spec, stored, path)
    graph = onnx.load(spec, path, device, rank=3)
    after, projections, token_weights = (
        layers.load(held, "cpu", torch.float32) for held in _layers(spec, route)
    )
    made = fixed(spec, route, weights.model_config(path))
    transformer = Transformer(Trained(graph, after, projections, token_weights, made))
    return onnx.Whole(TextEncoder(dict.fromkeys(stored.routes, transformer)), graph)


def _only_route(spec: ModelSpec, stored: Directory, path: Path) -> Route:
    """Of a graph that both roles share. Raises BadWeights for what no graph here does."""
    (route, *others) = encoders(stored)
    if others or route.path != path or any(each.looked_up for each in stored.routes.values()):
        raise weights.BadWeights(f"{path} has more or other than one transformer: backend torch runs that")
    if _splade(spec, route):
        raise weights.BadWeights("sparse vectors of a masked language model are made by backend torch only")
    return route


def _footprint(spec: ModelSpec, route: Route) -> Footprint:
    config = check_dims(spec, route)
    dtype = weights.dtype_on(weights.likely_device(spec.devices), spec.dtype, route.path)
    layered = [layer for held in _layers(spec, route) for layer in held]
    behind = sum(part.nbytes(dtype) for layer in layered for part in layers.stored(layer).values())
    if route.table:
        taken = table.footprint(spec, route)
        return replace(taken, weights_bytes=taken.weights_bytes + behind)
    per_token, base = workspace_per_token(config, dtype.itemsize), BASE_BYTES
    if _splade(spec, route):
        # scores of a chunk, and the strongest of each of its sequences
        base += 2 * SPARSE_ROWS * int(config["vocab_size"]) * 4
    if OutputType.MULTIVECTOR in outputs_of(spec):
        per_token += 3 * 4 * hidden_size(config)
    held = weights.weights_bytes(route.path, dtype, _without(spec, route))
    return Footprint(held + behind, base, per_token)


def _layers(spec: ModelSpec, route: Route) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
    """After pooling, of tokens, and those that weigh tokens: only what the entry's outputs need."""
    able = outputs_of(spec)
    return (
        route.layers if OutputType.DENSE in able else (),
        layers.projections(route) if OutputType.MULTIVECTOR in able else (),
        (route.token_weights,) if route.token_weights and OutputType.SPARSE in able else (),
    )


def _load(spec: ModelSpec, route: Route, device: str) -> Transformer:
    dtype = weights.dtype_on(device, spec.dtype, route.path)
    model = table.load(spec, route, device) if route.table else _network(spec, route, device, dtype)
    after, projections, token_weights = (layers.load(held, device, dtype) for held in _layers(spec, route))
    made = fixed(spec, route, table.described(route))
    return Transformer(Trained(model, after, projections, token_weights, made))


def _network(spec: ModelSpec, route: Route, device: str, dtype: torch.dtype) -> PreTrainedModel:
    if _splade(spec, route) and (route.sparse_activation not in ACTIVATIONS):
        raise weights.BadWeights(f"no sparse activation {route.sparse_activation!r}")
    auto: Any = AutoModelForMaskedLM if _splade(spec, route) else AutoModel
    if _halved(route):
        auto = AutoModelForTextEncoding
    without = _without(spec, route)
    remote = spec.trust_remote_code
    model = weights.load(auto, route.path, device, dtype, without=without, trust_remote_code=remote)
    if spec.options.get("bidirectional"):
        model.config.is_causal = False
    return model


def _splade(spec: ModelSpec, route: Route) -> bool:
    return OutputType.SPARSE in outputs_of(spec) and route.token_weights is None


def _without(spec: ModelSpec, route: Route) -> frozenset[str]:
    if _halved(route):
        return UNUSED | LANGUAGE_HEADS | {"decoder"}
    return UNUSED if _splade(spec, route) else UNUSED | LANGUAGE_HEADS


def _halved(route: Route) -> bool:
    return weights.model_config(route.path).get("model_type") in HALVES


FAMILY = TextEncoderFamily()
