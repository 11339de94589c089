"""Images into vectors: the pooled features of an image model of transformers (MobileNet, DINOv2, ViT, ...).

Pixels are decoded on the slot, for the batch that runs; until then an image waits as the bytes that came.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from transformers import AutoModel, PreTrainedModel

from engine.adapters.family import Footprint, Prepared
from engine.adapters.forward import weights
from engine.adapters.preparing.kinds import only_image
from engine.adapters.vision.pictures import Look, Picture, picture, see
from engine.adapters.vision.processors import Processor
from engine.adapters.vision.vectors import Wanted
from engine.catalog import ModelSpec
from engine.errors import EngineError, InvalidInput
from engine.requests import EncodeOptions, Item, Options, Output, OutputType, Task, Usage

BASE_BYTES = 16 << 20
WORKSPACE_PER_COST = 200.0
"""MobileNetV2's widest layer holds 192 bytes a pixel, in and out; a decoded pixel has 4, 50 to a cost."""
POOLINGS = ("cls", "mean")


@dataclass(frozen=True, slots=True)
class ImageJob:
    picture: Picture
    wanted: Wanted


class ImagePreparer:
    """Reads headers, and says early what the model cannot do."""

    def __init__(self, spec: ModelSpec, path: Path) -> None:
        self._spec = spec
        self._processor = Processor.of(path)

    def prepare(self, task: Task, items: Sequence[Item], options: Options) -> list[Prepared | EngineError]:
        if task is not Task.ENCODE or not isinstance(options, EncodeOptions):
            raise InvalidInput(f"{self._spec.id} makes vectors of images; it cannot {task}")
        wanted = Wanted.of(self._spec, options)
        return [self._one(item, index, wanted) for index, item in enumerate(items)]

    def _one(self, item: Item, index: int, wanted: Wanted) -> Prepared | EngineError:
        try:
            found = picture(self._processor, only_image(item), index)
        except EngineError as error:
            return error.at(index)
        return Prepared(found.cost, ImageJob(found, wanted), len(found.image.data), Usage(images=1))


class ImageEncoder:
    """Weights of an image model, and how its features become one vector."""

    def __init__(self, model: PreTrainedModel, processor: Processor, pooling: str | None) -> None:
        self._model = model
        self._processor = processor
        self._pooling = pooling

    def run(self, jobs: Sequence[Prepared]) -> Sequence[Output | EngineError]:
        payloads = [cast(ImageJob, job.payload) for job in jobs]
        with torch.inference_mode():
            found = see(self._processor, self._model, [p.picture for p in payloads], self._vectors)
        return [
            vector if isinstance(vector, EngineError) else payload.wanted.encoded(vector)
            for payload, vector in zip(payloads, found, strict=True)
        ]

    def dims(self) -> int:
        """Of its vectors: each architecture names them differently in its configuration, so one is made.

        Raises BadWeights where the model has nothing that its entry's pooling could be made of.
        """
        blank = self._processor(Image.new("RGB", (64, 64)))["pixel_values"]
        with torch.inference_mode():
            batch = torch.from_numpy(blank[None]).to(self._model.device, self._model.dtype)
            return int(self._pooled(batch).shape[1])

    def tensors(self) -> Mapping[str, Tensor]:
        return weights.tensors(self._model)

    def unload(self) -> None:
        weights.release(self._model)

    def _vectors(self, looks: Sequence[Look], inputs: Mapping[str, Tensor]) -> list[NDArray[np.float32]]:
        return list(self._pooled(inputs["pixel_values"]).float().cpu().numpy())

    def _pooled(self, pixels: Tensor) -> Tensor:
        """(images, dims): the model's own pooling, the first token, or the mean of the patches."""
        out = self._model(pixel_values=pixels)
        if self._pooling is None:
            if getattr(out, "pooler_output", None) is None:
                raise weights.BadWeights(
                    "the model pools nothing itself; the entry says pooling: cls or mean"
                )
            return cast(Tensor, out.pooler_output.flatten(1))
        states = cast(Tensor, out.last_hidden_state)
        if states.ndim == 4:
            if self._pooling == "cls":
                raise weights.BadWeights("the model has no token for the whole image; pooling: mean")
            return states.mean((2, 3))
        before = self._tokens_before_patches(states, pixels)
        if self._pooling == "cls" and before < 1:
            raise weights.BadWeights("the model has no token for the whole image; pooling: mean")
        return states[:, 0] if self._pooling == "cls" else states[:, max(0, before) :].mean(1)

    def _tokens_before_patches(self, states: Tensor, pixels: Tensor) -> int:
        """The token for the whole image, and registers; below 0 where patches are merged."""
        patch = getattr(self._model.config, "patch_size", 1)
        high, wide = (patch, patch) if isinstance(patch, int) else patch
        return int(states.shape[1]) - (pixels.shape[2] // high) * (pixels.shape[3] // wide)


class ImageEncoderFamily:
    """Models of transformers that give features of an image: `pooling` of the entry is cls, mean, or left
    out for the model's own (`pooler_output`)."""

    cost_unit: ClassVar[str] = "pixels"
    tasks: ClassVar[frozenset[Task]] = frozenset([Task.ENCODE])

    def footprint(self, spec: ModelSpec, path: Path) -> Footprint:
        if spec.pooling not in (None, *POOLINGS):
            raise weights.BadWeights(f"pooling of images is one of {', '.join(POOLINGS)}; not {spec.pooling}")
        dtype = weights.dtype_on(weights.likely_device(spec.devices), spec.dtype, path)
        held = weights.weights_bytes(path, dtype, _without(spec))
        return Footprint(held, BASE_BYTES, WORKSPACE_PER_COST)

    def preparer(self, spec: ModelSpec, path: Path) -> ImagePreparer:
        return ImagePreparer(spec, path)

    def load(self, spec: ModelSpec, path: Path, device: str) -> ImageEncoder:
        dtype = weights.dtype_on(device, spec.dtype, path)
        model = weights.load(AutoModel, path, device, dtype, without=_without(spec))
        encoder = ImageEncoder(model, Processor.of(path), spec.pooling)
        try:
            made = encoder.dims()
        except weights.BadWeights:
            encoder.unload()
            raise
        if spec.dims.get(OutputType.DENSE) not in (None, made):
            encoder.unload()
            raise weights.BadWeights(
                f"the entry says dims {{dense: {spec.dims[OutputType.DENSE]}}}; the model makes {made}"
            )
        return encoder


def _without(spec: ModelSpec) -> frozenset[str]:
    """Weights that no vector is made of: checkpoints for classification have no pooler."""
    return frozenset() if spec.pooling is None else frozenset(["pooler", "classifier"])


FAMILY = ImageEncoderFamily()
