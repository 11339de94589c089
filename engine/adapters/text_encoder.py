"""Text into vectors: dense, sparse (SPLADE) and multivector (ColBERT), several from one forward pass."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import linear, normalize
from transformers import AutoModel, AutoModelForMaskedLM, PreTrainedModel

from engine.adapters.family import Footprint, Prepared
from engine.adapters.forward import heads, weights
from engine.adapters.forward.packed import Encoder, Hidden, workspace_per_token
from engine.adapters.forward.pooling import pool
from engine.adapters.forward.quantize import quantize
from engine.adapters.preparing.text_jobs import EncodeJob, TextPreparer, Wanted, outputs_of
from engine.catalog import ModelSpec
from engine.errors import EngineError, InferenceFailed
from engine.requests import Encoded, Output, OutputType, Sparse, Task

UNUSED = frozenset(["pooler", "position_ids"])
"""Tensors of checkpoints that no output here is made of."""
LANGUAGE_HEADS = frozenset(
    [
        "cls",
        "generator_lm_head",
        "generator_predictions",
        "lm_head",
        "vocab_layer_norm",
        "vocab_projector",
        "vocab_transform",
    ]
)
"""And those that only sparse vectors are made of."""
SPARSE_ROWS = 256
"""Tokens whose scores over the whole vocabulary are held at once."""
BASE_BYTES = 16 << 20
"""What a forward pass takes whatever its size: GEMM buffers and small change."""


Maker = Callable[[Hidden, Sequence[EncodeJob], Sequence[int]], Mapping[int, Any]]
"""Makes one kind of output for the jobs at these places; those that are not finite are missing."""


class TextEncoder:
    """Weights of an encoder, with a masked language model's head when it gives sparse vectors."""

    def __init__(self, model: PreTrainedModel, projection: Tensor | None) -> None:
        self._model = model
        self._encoder = Encoder(model)
        self._projection = projection

    def run(self, jobs: Sequence[Prepared]) -> Sequence[Output | EngineError]:
        payloads = [cast(EncodeJob, job.payload) for job in jobs]
        asking: dict[OutputType, list[int]] = defaultdict(list)
        for place, payload in enumerate(payloads):
            for kind in payload.wanted.outputs:
                asking[kind].append(place)
        make: dict[OutputType, Maker] = {
            OutputType.DENSE: self._dense,
            OutputType.SPARSE: self._sparse,
            OutputType.MULTIVECTOR: self._multivector,
        }
        with torch.inference_mode():
            hidden = self._encoder.hidden([payload.ids for payload in payloads])
            made = {kind: make[kind](hidden, payloads, places) for kind, places in asking.items()}
        return [self._answer(place, payload, made) for place, payload in enumerate(payloads)]

    def tensors(self) -> Mapping[str, Tensor]:
        projection = {} if self._projection is None else {"projection": self._projection}
        return weights.tensors(self._model) | projection

    def unload(self) -> None:
        self._projection = None
        weights.release(self._model)

    def _answer(
        self, place: int, payload: EncodeJob, made: Mapping[OutputType, Mapping[int, Any]]
    ) -> Encoded | EngineError:
        parts = {kind.value: made[kind].get(place) for kind in payload.wanted.outputs}
        if any(part is None for part in parts.values()):
            return InferenceFailed("the model gave numbers that are not finite for this input")
        return Encoded(**parts)

    def _dense(
        self, hidden: Hidden, payloads: Sequence[EncodeJob], places: Sequence[int]
    ) -> dict[int, NDArray[Any]]:
        alike: dict[Wanted, list[int]] = defaultdict(list)
        for place in places:
            alike[payloads[place].wanted].append(place)
        pooled: dict[str, Tensor] = {}
        found: dict[int, NDArray[Any]] = {}
        for wanted, group in alike.items():
            if wanted.pooling not in pooled:
                pooled[wanted.pooling] = pool(hidden, wanted.pooling).float().cpu()
            vectors = pooled[wanted.pooling][group][:, : wanted.dimensions]
            if wanted.normalize:
                vectors = normalize(vectors)
            rows = vectors.numpy()
            finite = np.isfinite(rows).all(1)
            found.update(
                (place, row)
                for place, row, good in zip(
                    group, quantize(np.where(finite[:, None], rows, 0), wanted.dtype), finite, strict=True
                )
                if good
            )
        return found

    def _sparse(
        self, hidden: Hidden, payloads: Sequence[EncodeJob], places: Sequence[int]
    ) -> dict[int, Sparse]:
        """SPLADE-max: log(1 + relu(score)), the largest over the tokens, special ones included.

        arXiv 2109.10086, and what sentence-transformers' SparseEncoder does. Always float32.
        """
        found = {}
        asking = set(places)
        for laid, rows in hidden.layout.chunks(SPARSE_ROWS):
            indices = hidden.layout.order[laid]
            if asking.isdisjoint(indices.tolist()):
                continue
            best = self._strongest(hidden, laid, rows).relu_().log1p_().float().cpu().numpy()
            for index, row in zip(indices.tolist(), best, strict=True):
                if index in asking and np.isfinite(row).all():
                    terms = np.flatnonzero(row)
                    found[index] = Sparse(len(row), terms.astype(np.int32), row[terms])
        return found

    def _strongest(self, hidden: Hidden, laid: slice, rows: slice) -> Tensor:
        """(sequences, vocabulary): each sequence's largest score of each term."""
        if laid.stop - laid.start == 1:
            parts = torch.split(hidden.states[rows], SPARSE_ROWS)
            best = [heads.token_logits(self._model, part).amax(0) for part in parts]
            return torch.stack(best).amax(0, keepdim=True)
        scores = heads.token_logits(self._model, hidden.states[rows])
        lengths = hidden.layout.lengths[laid].tolist()
        return torch.stack([part.amax(0) for part in torch.split(scores, lengths)])

    def _multivector(
        self, hidden: Hidden, payloads: Sequence[EncodeJob], places: Sequence[int]
    ) -> dict[int, NDArray[Any]]:
        """A vector for each token (ColBERT, arXiv 2004.12832)."""
        states = hidden.states if self._projection is None else linear(hidden.states, self._projection)
        plain = states.float()
        unit = normalize(plain)
        found = {}
        for place in places:
            payload = payloads[place]
            vectors = (unit if payload.wanted.normalize else plain)[hidden.layout.rows(place)].cpu().numpy()
            if payload.counted is not None:
                vectors = vectors[payload.counted]
            if np.isfinite(vectors).all():
                found[place] = quantize(vectors, payload.wanted.dtype)
        return found


class TextEncoderFamily:
    """Encoders, and decoders used as such, of the transformers library."""

    cost_unit: ClassVar[str] = "tokens"
    tasks: ClassVar[frozenset[Task]] = frozenset([Task.ENCODE])

    def footprint(self, spec: ModelSpec, path: Path) -> Footprint:
        config = weights.model_config(path)
        _refuse_other_dims(spec, path, config)
        dtype = weights.dtype_on(weights.likely_device(spec.devices), spec.dtype, path)
        per_token = workspace_per_token(config, dtype.itemsize)
        base = BASE_BYTES
        if OutputType.SPARSE in outputs_of(spec):
            # scores of a chunk, and the strongest of each of its sequences
            base += 2 * SPARSE_ROWS * int(config["vocab_size"]) * 4
        if OutputType.MULTIVECTOR in outputs_of(spec):
            per_token += 3 * 4 * int(config["hidden_size"])
        return Footprint(weights.weights_bytes(path, dtype, _without(spec)), base, per_token)

    def preparer(self, spec: ModelSpec, path: Path) -> TextPreparer:
        return TextPreparer(spec, path)

    def load(self, spec: ModelSpec, path: Path, device: str) -> TextEncoder:
        outputs = outputs_of(spec)
        if OutputType.DENSE in outputs:
            _refuse_layers_after_pooling(path)
        dtype = weights.dtype_on(device, spec.dtype, path)
        auto = AutoModelForMaskedLM if OutputType.SPARSE in outputs else AutoModel
        remote = spec.trust_remote_code
        model = weights.load(auto, path, device, dtype, without=_without(spec), trust_remote_code=remote)
        stored = heads.projection(path) if OutputType.MULTIVECTOR in outputs else {}
        layer = weights.read(stored, dtype).get("linear.weight")
        return TextEncoder(model, None if layer is None else layer.to(device))


def _without(spec: ModelSpec) -> frozenset[str]:
    return UNUSED if OutputType.SPARSE in outputs_of(spec) else UNUSED | LANGUAGE_HEADS


def _refuse_other_dims(spec: ModelSpec, path: Path, config: Mapping[str, Any]) -> None:
    """What the entry says of its vectors is told to clients: it must be so."""
    hidden = config.get("hidden_size") or config.get("dim") or config.get("d_model")
    projected = heads.projection(path) if OutputType.MULTIVECTOR in outputs_of(spec) else {}
    rows = projected["linear.weight"].shape[0] if projected else hidden
    made = {
        OutputType.DENSE: hidden,
        OutputType.SPARSE: config.get("vocab_size"),
        OutputType.MULTIVECTOR: rows,
    }
    for kind, said in spec.dims.items():
        if made[kind] not in (None, said):
            raise weights.BadWeights(f"the entry says dims {{{kind}: {said}}}; the model makes {made[kind]}")


def _refuse_layers_after_pooling(path: Path) -> None:
    """A directory whose vectors go through further layers would come out wrong, not fail."""
    file = path / "modules.json"
    modules = json.loads(file.read_text("utf-8")) if file.is_file() else []
    if dense := [module["path"] for module in modules if module["type"].endswith(".Dense")]:
        raise weights.BadWeights(f"{path} has layers after its pooling ({', '.join(dense)}), not supported")


FAMILY = TextEncoderFamily()
