"""Texts and images into one space (CLIP, SigLIP, SigLIP 2): vectors, scores, zero-shot labels.

A cost of 1 is one token of a text or one patch of an image: both go through a transformer of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize
from transformers import AutoModel, PreTrainedModel

from engine.adapters.family import Footprint, Prepared
from engine.adapters.forward import weights
from engine.adapters.vision.dual import Asked, Classify, Encode, PairPreparer, Score, Text, TextSide
from engine.adapters.vision.pictures import Look, Picture, see
from engine.adapters.vision.processors import Processor
from engine.adapters.vision.vectors import TextVectors
from engine.catalog import ModelSpec
from engine.errors import EngineError, NotFinite
from engine.requests import Classification, Extracted, Output, OutputType, Scored, Task

BASE_BYTES = 16 << 20
COPIES = 16
"""Rows as wide as the hidden state that a layer holds at once for each token: the MLP's four in and out, the
residual, queries, keys, values, and an image's own pixels."""
Vector = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class _Vectors:
    """What was made of the texts and images of a batch, by the objects themselves."""

    made: Mapping[int, Vector | EngineError]

    def of(self, part: Text | Picture) -> Vector | EngineError:
        return self.made[id(part)]


class ImageTextEncoder:
    """Weights of both towers."""

    def __init__(self, model: PreTrainedModel, processor: Processor, texts: TextSide) -> None:
        self._model: Any = model
        self._processor = processor
        self._texts = texts
        self._labels = TextVectors(lambda asked: self._embed([texts.text(each) for each in asked]))

    def run(self, jobs: Sequence[Prepared]) -> Sequence[Output | EngineError]:
        payloads = [cast(Asked, job.payload) for job in jobs]
        with torch.inference_mode():
            found = self._vectors(payloads)
            return [self._answer(payload, found) for payload in payloads]

    def dims(self) -> int:
        with torch.inference_mode():
            return int(self._embed([self._texts.text("a")]).shape[1])

    def tensors(self) -> Mapping[str, Tensor]:
        return weights.tensors(self._model)

    def unload(self) -> None:
        weights.release(self._model)

    def _vectors(self, payloads: Sequence[Asked]) -> _Vectors:
        """Each text and image once, though it may be the query of many jobs."""
        parts = {id(part): part for payload in payloads for part in payload.parts}
        texts = [part for part in parts.values() if isinstance(part, Text)]
        pictures = [part for part in parts.values() if isinstance(part, Picture)]
        made: dict[int, Vector | EngineError] = {}
        if texts:
            rows = self._embed(texts).float().cpu().numpy()
            made |= {id(text): row for text, row in zip(texts, rows, strict=True)}
        seen = see(self._processor, self._model, pictures, self._look)
        return _Vectors(made | {id(part): row for part, row in zip(pictures, seen, strict=True)})

    def _look(self, looks: Sequence[Look], inputs: Mapping[str, Tensor]) -> list[Vector]:
        return list(self._model.get_image_features(**inputs).pooler_output.float().cpu().numpy())

    def _embed(self, texts: Sequence[Text]) -> Tensor:
        """(texts, dims), as they come."""
        parts = [self._model.get_text_features(**batch).pooler_output for batch in self._texts.batches(texts)]
        rows = torch.cat(parts)
        order = [place for places in self._texts.order(texts) for place in places]
        return rows[torch.argsort(torch.tensor(order, device=rows.device))]

    def _answer(self, payload: Asked, found: _Vectors) -> Output | EngineError:
        vectors = []
        for part in payload.parts:
            vector = found.of(part)
            if isinstance(vector, EngineError):
                return vector
            if not np.isfinite(vector).all():
                return NotFinite()
            vectors.append(torch.from_numpy(vector))
        match payload.do:
            case Encode(wanted):
                return wanted.encoded(vectors[0].numpy())
            case Score(sigmoid):
                likeness = (normalize(vectors[0], dim=0) @ normalize(vectors[1], dim=0)).item()
                logit = self._logits(torch.tensor(likeness))
                return Scored(logit.sigmoid().item() if sigmoid else likeness)
            case Classify() as classify:
                return self._classified(vectors[0], classify)

    def _classified(self, vector: Tensor, asked: Classify) -> Extracted:
        """As transformers' ZeroShotImageClassificationPipeline: one of the labels is true for CLIP, each
        may be for SigLIP."""
        labels = normalize(self._labels.of(asked.texts))
        logits = self._logits(labels @ normalize(vector, dim=0))
        chances = logits.sigmoid() if self._independent else logits.softmax(0)
        told = [
            Classification(label, chance)
            for label, chance in zip(asked.labels, chances.tolist(), strict=True)
            if asked.threshold is None or chance >= asked.threshold
        ]
        return Extracted(classifications=tuple(sorted(told, key=lambda c: -c.score)[: asked.top]))

    @property
    def _independent(self) -> bool:
        return hasattr(self._model, "logit_bias")

    def _logits(self, likeness: Tensor) -> Tensor:
        scaled: Tensor = likeness * self._model.logit_scale.float().exp().cpu()
        return scaled + self._model.logit_bias.float().cpu() if self._independent else scaled


class ImageTextEncoderFamily:
    """Models of transformers with `get_text_features` and `get_image_features`; inputs: [text, image].
    Options: `template` of zero-shot labels, with `{label}`; `labels`, `threshold`, `top_k`."""

    cost_unit: ClassVar[str] = "tokens"
    tasks: ClassVar[frozenset[Task]] = frozenset([Task.ENCODE, Task.SCORE, Task.EXTRACT])

    def footprint(self, spec: ModelSpec, path: Path) -> Footprint:
        dtype = weights.dtype_on(weights.likely_device(spec.devices), spec.dtype, path)
        config = weights.model_config(path)
        widest = max(int(config.get(side, {}).get("hidden_size", 768)) for side in SIDES)
        held = weights.weights_bytes(path, dtype)
        return Footprint(held, BASE_BYTES, float(COPIES * widest * dtype.itemsize))

    def preparer(self, spec: ModelSpec, path: Path) -> PairPreparer:
        return PairPreparer(spec, path)

    def load(self, spec: ModelSpec, path: Path, device: str) -> ImageTextEncoder:
        model = weights.load(AutoModel, path, device, weights.dtype_on(device, spec.dtype, path))
        if not (hasattr(model, "get_text_features") and hasattr(model, "get_image_features")):
            raise weights.BadWeights(f"{path}: {type(model).__name__} does not read both texts and images")
        encoder = ImageTextEncoder(model, Processor.of(path), TextSide(path, torch.device(device)))
        said = spec.dims.get(OutputType.DENSE)
        if said is not None and (made := encoder.dims()) != said:
            encoder.unload()
            raise weights.BadWeights(f"the entry says dims {{dense: {said}}}; the model makes {made}")
        return encoder


SIDES = ("text_config", "vision_config")

FAMILY = ImageTextEncoderFamily()
