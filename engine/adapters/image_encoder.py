"""Images into vectors: the pooled features of an image model of transformers (MobileNet, ResNet, ...).

Pixels are decoded on the slot, for the batch that runs; until then an image waits as the bytes that came.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import AutoModel, PreTrainedModel

from engine.adapters.family import Footprint, Prepared
from engine.adapters.forward import weights
from engine.adapters.forward.quantize import DTYPES, quantize
from engine.adapters.preparing.image_processor import ImageProcessor
from engine.adapters.preparing.images import decode, header
from engine.adapters.preparing.kinds import only_image
from engine.catalog import ModelSpec
from engine.errors import EngineError, InferenceFailed, InvalidInput
from engine.requests import Encoded, EncodeOptions, Item, Media, Options, Output, OutputType, Task, Usage

IMAGES_AT_ONCE = 8
SOURCE_PIXELS = 50
"""So many pixels of the image as sent take as long to decode as one that goes through the network."""
BASE_BYTES = 16 << 20
WORKSPACE_PER_COST = 200.0
"""MobileNetV2's widest layer holds 192 bytes a pixel, in and out; a decoded pixel has 4, 50 to a cost."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a job asks of its vector; none of it changes the forward pass."""

    normalize: bool
    dimensions: int | None
    dtype: str


@dataclass(frozen=True, slots=True)
class ImageJob:
    image: Media
    index: int
    wanted: Wanted


class ImagePreparer:
    """Reads headers, and says early what the model cannot do."""

    def __init__(self, spec: ModelSpec, path: Path) -> None:
        self._spec = spec
        height, width = ImageProcessor.of(path).shape
        self._pixels = height * width

    def prepare(self, task: Task, items: Sequence[Item], options: Options) -> list[Prepared | EngineError]:
        if task is not Task.ENCODE or not isinstance(options, EncodeOptions):
            raise InvalidInput(f"{self._spec.id} makes vectors of images; it cannot {task}")
        wanted = self._wanted(options)
        return [self._one(item, index, wanted) for index, item in enumerate(items)]

    def _one(self, item: Item, index: int, wanted: Wanted) -> Prepared | EngineError:
        try:
            image = only_image(item)
            source = header(image).pixels
        except EngineError as error:
            return error.at(index)
        cost = self._pixels + source // SOURCE_PIXELS
        return Prepared(cost, ImageJob(image, index, wanted), len(image.data), Usage(images=1))

    def _wanted(self, options: EncodeOptions) -> Wanted:
        dims = sorted({*self._spec.matryoshka, *self._spec.dims.values()})
        kinds = {kind.value for kind in options.output_types} - {OutputType.DENSE.value}
        for option, value, possible, choices in (
            ("output_type", ", ".join(sorted(kinds)), not kinds, ("dense",)),
            ("output_dtype", options.output_dtype, options.output_dtype in DTYPES, DTYPES),
            ("dimensions", options.dimensions, options.dimensions in (None, *dims), dims),
            ("pooling", options.pooling, options.pooling is None, ("what the model does itself",)),
            ("instruction", options.instruction, options.instruction is None, ("images alone",)),
        ):
            if not possible:
                can = ", ".join(map(str, choices))
                raise InvalidInput(f"{self._spec.id} cannot do {option} {value!r}; it can do: {can}")
        normalize = options.normalize
        if normalize is None:
            normalize = bool(self._spec.options.get("normalize", self._spec.normalize))
        return Wanted(normalize, options.dimensions, options.output_dtype)


class ImageEncoder:
    """Weights of an image model that pools its features."""

    def __init__(self, model: PreTrainedModel, processor: ImageProcessor) -> None:
        self._model = model
        self._processor = processor

    def run(self, jobs: Sequence[Prepared]) -> Sequence[Output | EngineError]:
        payloads = [cast(ImageJob, job.payload) for job in jobs]
        answers: list[Output | EngineError] = []
        with torch.inference_mode():
            for start in range(0, len(payloads), IMAGES_AT_ONCE):
                answers += self._some(payloads[start : start + IMAGES_AT_ONCE])
        return answers

    def dims(self) -> int:
        """Of its vectors: each architecture names them differently in its configuration, so one is made."""
        with torch.inference_mode():
            return int(self._vectors(np.zeros((1, 3, *self._processor.shape), np.float32)).shape[1])

    def tensors(self) -> Mapping[str, Tensor]:
        return weights.tensors(self._model)

    def unload(self) -> None:
        weights.release(self._model)

    def _some(self, payloads: Sequence[ImageJob]) -> Iterator[Output | EngineError]:
        seen = [self._seen(payload) for payload in payloads]
        good = [pixels for pixels in seen if not isinstance(pixels, EngineError)]
        vectors = iter(self._vectors(np.stack(good))) if good else iter(())
        for payload, pixels in zip(payloads, seen, strict=True):
            yield pixels if isinstance(pixels, EngineError) else _encoded(next(vectors), payload.wanted)

    def _seen(self, payload: ImageJob) -> NDArray[np.float32] | EngineError:
        try:
            return self._processor(decode(payload.image))
        except InvalidInput as error:
            return error.at(payload.index)

    def _vectors(self, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
        batch = torch.from_numpy(pixels).to(self._model.device, self._model.dtype)
        pooled = self._model(pixel_values=batch).pooler_output
        vectors: NDArray[np.float32] = pooled.flatten(1).float().cpu().numpy()
        return vectors


def _encoded(vector: NDArray[np.float32], wanted: Wanted) -> Encoded | EngineError:
    if not np.isfinite(vector).all():
        return InferenceFailed("the model gave numbers that are not finite for this input")
    vector = vector[: wanted.dimensions]
    if wanted.normalize:
        vector = vector / max(float(np.linalg.norm(vector)), 1e-12)
    return Encoded(dense=quantize(vector.astype(np.float32), wanted.dtype))


class ImageEncoderFamily:
    """Models of transformers whose `pooler_output` is one vector an image."""

    cost_unit: ClassVar[str] = "pixels"
    tasks: ClassVar[frozenset[Task]] = frozenset([Task.ENCODE])

    def footprint(self, spec: ModelSpec, path: Path) -> Footprint:
        dtype = weights.dtype_on(weights.likely_device(spec.devices), spec.dtype, path)
        return Footprint(weights.weights_bytes(path, dtype), BASE_BYTES, WORKSPACE_PER_COST)

    def preparer(self, spec: ModelSpec, path: Path) -> ImagePreparer:
        return ImagePreparer(spec, path)

    def load(self, spec: ModelSpec, path: Path, device: str) -> ImageEncoder:
        model = weights.load(AutoModel, path, device, weights.dtype_on(device, spec.dtype, path))
        encoder = ImageEncoder(model, ImageProcessor.of(path))
        said = spec.dims.get(OutputType.DENSE)
        if said is not None and (made := encoder.dims()) != said:
            encoder.unload()
            raise weights.BadWeights(f"the entry says dims {{dense: {said}}}; the model makes {made}")
        return encoder


FAMILY = ImageEncoderFamily()
