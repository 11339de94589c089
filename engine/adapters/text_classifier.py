"""Texts into classes by a head on the whole sequence: BERT and its like, DeBERTa, decoders with a score.

A long text is read in overlapping windows where the entry says `overflow: window`. Their chances are
averaged by length; or, with the option `alarm: LABEL`, the window where that label is likeliest answers
for the text, which is what a guard needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import AutoModelForSequenceClassification

from engine.adapters.family import Footprint, Prepared
from engine.adapters.forward import onnx, weights
from engine.adapters.forward.heads import sequence_logits
from engine.adapters.forward.packed import Ids, workspace_per_token
from engine.adapters.labelling.labels import Chosen, Labels, in_order
from engine.adapters.preparing.kinds import each_text, extract_options, raw_scores
from engine.adapters.preparing.tokens import Piece, TextTokenizer, max_tokens
from engine.adapters.preparing.windows import fit
from engine.catalog import ModelSpec
from engine.errors import EngineError, InvalidInput
from engine.requests import Extracted, ExtractOptions, Item, Options, Output, Task, Usage

OVERLAP = 64
BASE_BYTES = 16 << 20
"""What a forward pass takes whatever its size: GEMM buffers and small change."""


@dataclass(frozen=True, slots=True)
class ClassJob:
    """One text, as the windows that the model reads."""

    windows: tuple[Piece, ...]
    asked: Chosen
    threshold: float | None
    raw: bool = False
    """The scores themselves instead of the chances that are made of them."""


class ClassPreparer:
    """Tokenises and lays windows."""

    def __init__(self, spec: ModelSpec, path: Path) -> None:
        config = weights.model_config(path)
        self._spec = spec
        self._labels = Labels(spec.id, in_order(config["id2label"]), spec.labels)
        self._tokenizer = TextTokenizer(path)
        self.cutter = self._tokenizer.cutter
        self._room = max_tokens(spec, config) - self._tokenizer.single.length
        self._vocabulary = int(config["vocab_size"])

    def prepare(self, task: Task, items: Sequence[Item], options: Options) -> list[Prepared | EngineError]:
        raw, options = raw_scores(options)
        extract = extract_options(task, options)
        asked = self._labels.choose(extract.labels)
        return each_text(
            items,
            self._tokenizer.ids,
            lambda _, ids, index: self._one(ids, extract, asked, raw, index),
        )

    def _one(
        self, ids: Ids, options: ExtractOptions, asked: Chosen, raw: bool, index: int
    ) -> Prepared | EngineError:
        try:
            spans = fit(len(ids), self._room, min(OVERLAP, self._room // 4), self._spec, options.overflow)
        except EngineError as error:
            return error.at(index)
        if len(ids) and int(ids.max()) >= self._vocabulary:
            return InvalidInput(f"item {index} holds a token that the model does not have", item=index)
        frame = self._tokenizer.single
        windows = tuple(frame.fill(ids[span.start : span.end]) for span in spans)
        cost = sum(len(window.ids) for window in windows)
        if not cost:
            return InvalidInput(f"item {index} has no tokens", item=index)
        read = spans[-1].end
        usage = Usage(input_tokens=read + frame.length, truncated=int(read < len(ids)))
        return Prepared(cost, ClassJob(windows, asked, options.threshold, raw), 8 * cost, usage)


class TextClassifier:
    """Weights of an encoder with a classification head."""

    def __init__(self, model: onnx.Network, alarm: str | None) -> None:
        self._model = model
        self._encoder = onnx.encoder(model)
        self._labels = in_order(model.config.id2label)
        self._alarm = None if alarm is None else self._labels.index(alarm)

    def run(self, jobs: Sequence[Prepared]) -> Sequence[Output | EngineError]:
        payloads = [cast(ClassJob, job.payload) for job in jobs]
        windows = [window for payload in payloads for window in payload.windows]
        with torch.inference_mode():
            hidden = self._encoder.hidden([w.ids for w in windows], [w.types for w in windows])
            logits = sequence_logits(self._model, hidden).float()
            chances, scores = self._chances(logits).cpu().numpy(), logits.cpu().numpy()
        ends = np.cumsum([len(payload.windows) for payload in payloads])[:-1]
        split = zip(payloads, np.split(chances, ends), np.split(scores, ends), strict=True)
        return [self._answer(payload, likely, scored) for payload, likely, scored in split]

    @property
    def network(self) -> onnx.Network:
        """What adapters change."""
        return self._model

    def tensors(self) -> Mapping[str, Tensor]:
        return weights.tensors(self._model)

    def unload(self) -> None:
        weights.release(self._model)

    def _chances(self, logits: Tensor) -> Tensor:
        """As transformers' TextClassificationPipeline: independent labels each for itself."""
        kind = self._model.config.problem_type
        if kind == "regression":
            return logits
        if kind == "multi_label_classification" or len(self._labels) == 1:
            return logits.sigmoid()
        return logits.softmax(-1)

    def _answer(
        self, job: ClassJob, chances: NDArray[np.float32], scores: NDArray[np.float32]
    ) -> Extracted | EngineError:
        """A row a window."""
        windows = scores if job.raw else chances
        if self._alarm is not None:
            row = windows[chances[:, self._alarm].argmax()]
        else:
            row = np.average(windows, axis=0, weights=[len(window.ids) for window in job.windows])
        try:
            found = job.asked.classified(dict(zip(self._labels, row.tolist(), strict=True)), job.threshold)
        except EngineError as error:
            return error
        return Extracted(classifications=found)


class TextClassifierFamily:
    """Sequence classifiers of the transformers library."""

    cost_unit: ClassVar[str] = "tokens"
    tasks: ClassVar[frozenset[Task]] = frozenset([Task.EXTRACT])

    def footprint(self, spec: ModelSpec, path: Path) -> Footprint:
        if spec.backend != "torch":
            return onnx.footprint(spec, path)
        dtype = weights.dtype_on(weights.likely_device(spec.devices), spec.dtype, path)
        per_token = workspace_per_token(weights.model_config(path), dtype.itemsize)
        return Footprint(weights.weights_bytes(path, dtype), BASE_BYTES, per_token)

    def preparer(self, spec: ModelSpec, path: Path) -> ClassPreparer:
        return ClassPreparer(spec, path)

    def load(self, spec: ModelSpec, path: Path, device: str) -> TextClassifier | onnx.Whole:
        if spec.backend != "torch":
            graph = onnx.load(spec, path, device, rank=2)
            return onnx.Whole(TextClassifier(graph, spec.options.get("alarm")), graph)
        model = weights.load(
            AutoModelForSequenceClassification,
            path,
            device,
            weights.dtype_on(device, spec.dtype, path),
            trust_remote_code=spec.trust_remote_code,
        )
        return TextClassifier(model, spec.options.get("alarm"))


FAMILY = TextClassifierFamily()
