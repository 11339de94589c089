"""Things in images with boxes, by a detector of transformers with labels of its own (DETR, YOLOS, ...).

What an image's boxes are is read out of the network by transformers' own processor. These families are
trained to give each thing once: their references suppress nothing afterwards, nor does this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, cast

import torch
from torch import Tensor
from transformers import AutoModelForObjectDetection, PreTrainedModel

from engine.adapters.family import Footprint, Prepared
from engine.adapters.forward import weights
from engine.adapters.labelling.labels import Chosen, Labels, in_order
from engine.adapters.preparing.kinds import extract_options, only_image
from engine.adapters.vision.asked import threshold_of
from engine.adapters.vision.boxes import detections, known, readable
from engine.adapters.vision.pictures import Look, Picture, picture, see
from engine.adapters.vision.processors import Processor
from engine.catalog import ModelSpec
from engine.errors import EngineError, NotFinite
from engine.requests import Extracted, Item, Options, Output, Task, Usage

BASE_BYTES = 32 << 20
WORKSPACE_PER_COST = 512.0
"""A ResNet holds 64 channels of float32 at half an image's size, in and out, and as many again inside a
block; the encoder sees one thousandth of the pixels. What batches really take is learned."""
THRESHOLD = 0.5


@dataclass(frozen=True, slots=True)
class DetectJob:
    picture: Picture
    asked: Chosen
    threshold: float


class ObjectPreparer:
    """Reads headers, and says early what the model cannot find."""

    def __init__(self, spec: ModelSpec, path: Path) -> None:
        self._spec = spec
        self._processor = Processor.whole(path)
        self._labels = Labels(spec.id, in_order(weights.model_config(path).get("id2label")), spec.labels)

    def prepare(self, task: Task, items: Sequence[Item], options: Options) -> list[Prepared | EngineError]:
        extract = extract_options(task, options)
        asked = self._labels.choose(extract.labels)
        threshold = threshold_of(self._spec, extract, THRESHOLD)
        assert threshold is not None, "there is a default"
        return [self._one(item, index, asked, threshold) for index, item in enumerate(items)]

    def _one(self, item: Item, index: int, asked: Chosen, threshold: float) -> Prepared | EngineError:
        try:
            found = picture(self._processor, only_image(item), index)
        except EngineError as error:
            return error.at(index)
        job = DetectJob(found, asked, threshold)
        return Prepared(found.cost, job, len(found.image.data), Usage(images=1))


class ObjectDetector:
    def __init__(self, model: PreTrainedModel, processor: Processor) -> None:
        self._model = model
        self._processor = processor
        self._labels = in_order(model.config.id2label)

    def run(self, jobs: Sequence[Prepared]) -> Sequence[Output | EngineError]:
        payloads = [cast(DetectJob, job.payload) for job in jobs]

        def detect(looks: Sequence[Look], inputs: Mapping[str, Tensor]) -> list[Extracted | EngineError]:
            out = readable(self._model(**inputs))
            sizes = [(look.height, look.width) for look in looks]
            # every box is asked for: thresholds and labels are each job's own
            rows = self._processor.reference.post_process_object_detection(
                out, threshold=-1.0, target_sizes=sizes
            )
            return [
                self._answer(payloads[look.place], look, row) if known(logits, boxes) else NotFinite()
                for look, row, logits, boxes in zip(looks, rows, out.logits, out.pred_boxes, strict=True)
            ]

        with torch.inference_mode():
            return see(self._processor, self._model, [p.picture for p in payloads], detect)

    def tensors(self) -> Mapping[str, Tensor]:
        return weights.tensors(self._model)

    def unload(self) -> None:
        weights.release(self._model)

    def _answer(self, job: DetectJob, look: Look, row: Mapping[str, Any]) -> Extracted | EngineError:
        names = [job.asked.name(self._labels[label]) for label in row["labels"].tolist()]
        return detections(names, row["scores"], row["boxes"], look, job.threshold)


class ObjectDetectorFamily:
    """`AutoModelForObjectDetection`; options: `threshold`. Labels are those of config.json."""

    cost_unit: ClassVar[str] = "pixels"
    tasks: ClassVar[frozenset[Task]] = frozenset([Task.EXTRACT])

    def footprint(self, spec: ModelSpec, path: Path) -> Footprint:
        dtype = weights.dtype_on(weights.likely_device(spec.devices), spec.dtype, path)
        return Footprint(weights.weights_bytes(path, dtype), BASE_BYTES, WORKSPACE_PER_COST)

    def preparer(self, spec: ModelSpec, path: Path) -> ObjectPreparer:
        return ObjectPreparer(spec, path)

    def load(self, spec: ModelSpec, path: Path, device: str) -> ObjectDetector:
        dtype = weights.dtype_on(device, spec.dtype, path)
        processor = Processor.whole(path)
        if not hasattr(processor.reference, "post_process_object_detection"):
            raise weights.BadWeights(f"{path}: its image processor finds no boxes")
        return ObjectDetector(weights.load(AutoModelForObjectDetection, path, device, dtype), processor)


FAMILY = ObjectDetectorFamily()
