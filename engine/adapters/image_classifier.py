"""What an image shows, by a classifier of transformers (ViT, ConvNeXt, Swin, ...): labels with chances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, cast

import torch
from torch import Tensor
from transformers import AutoModelForImageClassification, PreTrainedModel

from engine.adapters.family import Footprint, Prepared
from engine.adapters.forward import weights
from engine.adapters.labelling.labels import Chosen, Labels, in_order
from engine.adapters.preparing.kinds import extract_options, only_image
from engine.adapters.vision.asked import threshold_of, top_of
from engine.adapters.vision.pictures import Look, Picture, picture, see
from engine.adapters.vision.processors import Processor
from engine.catalog import ModelSpec
from engine.errors import EngineError
from engine.requests import Extracted, Item, Options, Output, Task, Usage

BASE_BYTES = 16 << 20
WORKSPACE_PER_COST = 200.0
"""As for vectors of images: the head adds a row of labels."""
TOP = 5
"""Labels given when none are asked for, as transformers' pipeline gives."""


@dataclass(frozen=True, slots=True)
class ClassifyJob:
    picture: Picture
    asked: Chosen
    threshold: float | None
    top: int | None


class ClassifyPreparer:
    def __init__(self, spec: ModelSpec, path: Path) -> None:
        self._spec = spec
        self._processor = Processor.of(path)
        self._labels = Labels(spec.id, in_order(weights.model_config(path).get("id2label")), spec.labels)

    def prepare(self, task: Task, items: Sequence[Item], options: Options) -> list[Prepared | EngineError]:
        extract = extract_options(task, options)
        asked = self._labels.choose(extract.labels)
        threshold = threshold_of(self._spec, extract)
        top = top_of(self._spec, extract.extra, None if extract.labels else TOP)
        return [self._one(item, index, asked, threshold, top) for index, item in enumerate(items)]

    def _one(
        self, item: Item, index: int, asked: Chosen, threshold: float | None, top: int | None
    ) -> Prepared | EngineError:
        try:
            found = picture(self._processor, only_image(item), index)
        except EngineError as error:
            return error.at(index)
        job = ClassifyJob(found, asked, threshold, top)
        return Prepared(found.cost, job, len(found.image.data), Usage(images=1))


class ImageClassifier:
    def __init__(self, model: PreTrainedModel, processor: Processor) -> None:
        self._model = model
        self._processor = processor
        self._labels = in_order(model.config.id2label)

    def run(self, jobs: Sequence[Prepared]) -> Sequence[Output | EngineError]:
        payloads = [cast(ClassifyJob, job.payload) for job in jobs]

        def classify(looks: Sequence[Look], inputs: Mapping[str, Tensor]) -> list[Extracted | EngineError]:
            rows = self._chances(self._model(**inputs).logits.float()).cpu()
            return [
                self._answer(payloads[look.place], row.tolist())
                for look, row in zip(looks, rows, strict=True)
            ]

        with torch.inference_mode():
            return see(self._processor, self._model, [p.picture for p in payloads], classify)

    def tensors(self) -> Mapping[str, Tensor]:
        return weights.tensors(self._model)

    def unload(self) -> None:
        weights.release(self._model)

    def _chances(self, logits: Tensor) -> Tensor:
        """As transformers' ImageClassificationPipeline: independent labels each for itself."""
        if self._model.config.problem_type == "multi_label_classification" or logits.shape[-1] == 1:
            return logits.sigmoid()
        return logits.softmax(-1)

    def _answer(self, job: ClassifyJob, chances: Sequence[float]) -> Extracted | EngineError:
        likeliest: dict[str, float] = {}
        for label, chance in zip(self._labels, chances, strict=True):
            # ImageNet has two classes of the name crane: the likelier one is told
            likeliest[label] = max(chance, likeliest.get(label, chance))
        try:
            found = job.asked.classified(likeliest, job.threshold)
        except EngineError as error:
            return error
        return Extracted(classifications=found[: job.top])


class ImageClassifierFamily:
    """Image classifiers of the transformers library; options: `threshold`, `top_k`."""

    cost_unit: ClassVar[str] = "pixels"
    tasks: ClassVar[frozenset[Task]] = frozenset([Task.EXTRACT])

    def footprint(self, spec: ModelSpec, path: Path) -> Footprint:
        dtype = weights.dtype_on(weights.likely_device(spec.devices), spec.dtype, path)
        return Footprint(weights.weights_bytes(path, dtype), BASE_BYTES, WORKSPACE_PER_COST)

    def preparer(self, spec: ModelSpec, path: Path) -> ClassifyPreparer:
        return ClassifyPreparer(spec, path)

    def load(self, spec: ModelSpec, path: Path, device: str) -> ImageClassifier:
        dtype = weights.dtype_on(device, spec.dtype, path)
        model = weights.load(AutoModelForImageClassification, path, device, dtype)
        return ImageClassifier(model, Processor.of(path))


FAMILY = ImageClassifierFamily()
