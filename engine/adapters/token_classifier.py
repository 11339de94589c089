"""Entities by a label for every token: BERT and its like with a token classification head.

A long text is read in overlapping windows. Each token takes its label from the window in which it has the
most text around it, and spans are formed afterwards over the whole text, so no entity is cut or found twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Encoding
from torch import Tensor
from transformers import AutoModelForTokenClassification

from engine.adapters.family import Footprint, Prepared
from engine.adapters.forward import onnx, weights
from engine.adapters.forward.packed import workspace_per_token
from engine.adapters.labelling.labels import Chosen, Labels, in_order
from engine.adapters.labelling.tagging import Tagger, Tokens
from engine.adapters.preparing.kinds import each_text, extract_options
from engine.adapters.preparing.tokens import Piece, TextTokenizer, max_tokens
from engine.adapters.preparing.windows import Span, fit, owned
from engine.catalog import ModelSpec
from engine.errors import EngineError, InvalidInput, NotFinite
from engine.requests import Entity, Extracted, ExtractOptions, Item, Options, Output, Task, Usage

OVERLAP = 128
BASE_BYTES = 16 << 20
"""What a forward pass takes whatever its size: GEMM buffers and small change."""


@dataclass(frozen=True, slots=True)
class TagJob:
    """One text. `windows` are what the model reads, special tokens included; `spans` say which tokens."""

    text: str
    tokens: Tokens
    windows: tuple[Piece, ...]
    spans: tuple[Span, ...]
    lead: int
    """Special tokens before the text in each window."""
    asked: Chosen
    threshold: float
    lora: str | None = None
    """The adapter that reads it."""


class TagPreparer:
    """Tokenises with offsets and lays windows."""

    def __init__(self, spec: ModelSpec, path: Path) -> None:
        config = weights.model_config(path)
        self._spec = spec
        self._labels = Labels(spec.id, tagger(spec, config["id2label"]).labels, spec.labels)
        self._tokenizer = TextTokenizer(path)
        self.cutter = self._tokenizer.cutter
        self._room = max_tokens(spec, config) - self._tokenizer.single.length
        self._vocabulary = int(config["vocab_size"])

    def prepare(self, task: Task, items: Sequence[Item], options: Options) -> list[Prepared | EngineError]:
        extract = extract_options(task, options)
        asked = self._labels.choose(extract.labels)
        return each_text(
            items,
            self._tokenizer.encodings,
            lambda text, encoding, index: self._one(text, encoding, extract, asked, index),
        )

    def _one(
        self, text: str, encoding: Encoding, options: ExtractOptions, asked: Chosen, index: int
    ) -> Prepared | EngineError:
        ids = np.array(encoding.ids, np.int32)
        overlap = min(OVERLAP, self._room // 4)
        try:
            spans = fit(len(ids), self._room, overlap, self._spec, options.overflow)
        except EngineError as error:
            return error.at(index)
        if len(ids) and int(ids.max()) >= self._vocabulary:
            return InvalidInput(f"item {index} holds a token that the model does not have", item=index)
        read = spans[-1].end
        frame = self._tokenizer.single
        windows = [frame.fill(ids[span.start : span.end]) for span in spans] if read else []
        words = np.array([-1 if word is None else word for word in encoding.word_ids[:read]], np.int32)
        offsets = np.array(encoding.offsets[:read], np.int32).reshape(read, 2)
        threshold = options.threshold
        if threshold is None:
            threshold = float(self._spec.options.get("threshold", 0.0))
        job = TagJob(
            text,
            Tokens(offsets, words),
            tuple(windows),
            tuple(spans),
            len(frame.around[0].ids),
            asked,
            threshold,
        )
        cost = sum(len(window.ids) for window in windows)
        usage = Usage(input_tokens=read + frame.length, truncated=int(read < len(ids)))
        return Prepared(max(1, cost), job, len(text) + 12 * read + 8 * cost, usage)


class TokenClassifier:
    """Weights of an encoder and of the layers behind it."""

    def __init__(self, model: onnx.Network, tagger: Tagger) -> None:
        self._model = model
        self._encoder = onnx.encoder(model)
        # registered in the order in which the library's own forward applies them
        self._behind = [name for name, _ in model.named_children() if name != model.base_model_prefix]
        self._tagger = tagger

    def run(self, jobs: Sequence[Prepared]) -> Sequence[Output | EngineError]:
        payloads = [cast(TagJob, job.payload) for job in jobs]
        windows = [window for payload in payloads for window in payload.windows]
        scores: list[NDArray[np.float32]] = []
        if windows:
            with torch.inference_mode():
                ids, types = [w.ids for w in windows], [w.types for w in windows]
                adapters = [payload.lora for payload in payloads for _ in payload.windows]
                hidden = self._encoder.hidden(ids, types, adapters=adapters)
                flat = self._head(hidden.states).float().softmax(-1).cpu().numpy()
            scores = [flat[hidden.layout.rows(place)] for place in range(len(windows))]
        left = iter(scores)
        return [self._answer(payload, [next(left) for _ in payload.windows]) for payload in payloads]

    @property
    def network(self) -> onnx.Network:
        """What adapters change."""
        return self._model

    def _head(self, states: Tensor) -> Tensor:
        for name in self._behind:  # asked each time: an adapter may have taken a layer's place
            states = getattr(self._model, name)(states)
        return states

    def tensors(self) -> Mapping[str, Tensor]:
        return weights.tensors(self._model)

    def unload(self) -> None:
        weights.release(self._model)

    def _answer(self, job: TagJob, windows: list[NDArray[np.float32]]) -> Extracted | EngineError:
        if not windows:
            return Extracted()
        parts = [
            scores[job.lead + part.start - span.start : job.lead + part.end - span.start]
            for scores, span, part in zip(windows, job.spans, owned(job.spans), strict=True)
        ]
        scores = np.concatenate(parts)
        if not np.isfinite(scores).all():
            return NotFinite()
        return Extracted(
            entities=tuple(
                Entity(job.text[found.start : found.end], name, found.score, found.start, found.end)
                for found in self._tagger.spans(job.text, job.tokens, scores)
                if (name := job.asked.name(found.label)) is not None and found.score >= job.threshold
            )
        )


def tagger(spec: ModelSpec, labels: Mapping[Any, str] | None) -> Tagger:
    """As the entry's options say: `aggregation` (first) and `merge`."""
    return Tagger(in_order(labels), spec.options.get("aggregation", "first"), spec.options.get("merge"))


class TokenClassifierFamily:
    """Token classifiers of the transformers library."""

    cost_unit: ClassVar[str] = "tokens"
    tasks: ClassVar[frozenset[Task]] = frozenset([Task.EXTRACT])

    def footprint(self, spec: ModelSpec, path: Path) -> Footprint:
        if spec.backend != "torch":
            return onnx.footprint(spec, path)
        dtype = weights.dtype_on(weights.likely_device(spec.devices), spec.dtype, path)
        config = weights.model_config(path)
        per_token = workspace_per_token(config, dtype.itemsize) + 3 * 4 * len(config["id2label"])
        return Footprint(weights.weights_bytes(path, dtype), BASE_BYTES, per_token)

    def preparer(self, spec: ModelSpec, path: Path) -> TagPreparer:
        return TagPreparer(spec, path)

    def load(self, spec: ModelSpec, path: Path, device: str) -> TokenClassifier | onnx.Whole:
        if spec.backend != "torch":
            graph = onnx.load(spec, path, device, rank=3)
            return onnx.Whole(TokenClassifier(graph, tagger(spec, graph.config.id2label)), graph)
        model = weights.load(
            AutoModelForTokenClassification,
            path,
            device,
            weights.dtype_on(device, spec.dtype, path),
            trust_remote_code=spec.trust_remote_code,
        )
        return TokenClassifier(model, tagger(spec, model.config.id2label))


FAMILY = TokenClassifierFamily()
