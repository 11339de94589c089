"""What a vision model sees of an image: the arrays that its directory's own image processor makes.

By transformers' processors of the `pil` kind, since the others need torchvision. Those that only resize,
crop, rescale and normalise are done by `ImageProcessor`, which takes less than half of their time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from transformers.image_transforms import get_size_with_aspect_ratio

# from its own module: the package's name for it is a stand-in that asks for torchvision
from transformers.models.auto.image_processing_auto import AutoImageProcessor

from engine.adapters.forward.weights import BadWeights
from engine.adapters.preparing.image_processor import ImageProcessor

Seen = Mapping[str, NDArray[Any]]
"""The model's inputs for one image, by name, without the batch's axis."""

PLAIN = frozenset(
    [
        "BitImageProcessor",
        "CLIPImageProcessor",
        "MobileNetV2ImageProcessor",
        "SiglipImageProcessor",
        "ViTImageProcessor",
    ]
)
CHANNELS = 3


class Processor:
    """One directory's image processor; threads may share it."""

    def __init__(
        self, see: Callable[[Image.Image], Seen], pixels: Callable[[int, int], int], reference: Any = None
    ) -> None:
        self._see = see
        self._pixels = pixels
        self.reference = reference
        """transformers' own object, which also reads outputs; None where `ImageProcessor` is used."""

    @classmethod
    def of(cls, path: Path) -> Processor:
        """Raises BadWeights for a directory without one, or with one that cannot be had here."""
        if _plain(path):
            plain = ImageProcessor.of(path)
            height, width = plain.shape
            return cls(lambda image: {"pixel_values": plain(image)}, lambda *_: height * width)
        return cls.whole(path)

    @classmethod
    def whole(cls, path: Path) -> Processor:
        """As `of`, but always transformers' own object. Raises BadWeights."""
        reference = reference_of(path)

        def see(image: Image.Image) -> Seen:
            found = reference(images=image, return_tensors="np")
            return {name: np.asarray(values)[0] for name, values in found.items()}

        return cls(see, _estimate(see, reference, path), reference)

    def __call__(self, image: Image.Image) -> Seen:
        """Of an image in RGB."""
        return self._see(image)

    def pixels(self, width: int, height: int) -> int:
        """How many go through the network for an image of this size."""
        return self._pixels(width, height)


def reference_of(path: Path, kind: Any = None) -> Any:
    """transformers' own object. Raises BadWeights.

    `kind`: its class, where transformers hides that because another part of its family needs torchvision.
    """
    try:
        if kind is not None:
            return kind.from_pretrained(path, local_files_only=True)
        return AutoImageProcessor.from_pretrained(path, backend="pil", local_files_only=True)
    except (ImportError, OSError, ValueError) as error:
        raise BadWeights(f"{path}: its image processor cannot be used: {str(error)[:300]}") from error


def _plain(path: Path) -> bool:
    file = path / "preprocessor_config.json"
    if not file.is_file():
        return False
    try:
        held: dict[str, Any] = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise BadWeights(f"{path}/preprocessor_config.json cannot be read: {error}") from error
    size, crop = held.get("size"), held.get("crop_size")
    if held.get("image_processor_type") not in PLAIN or not isinstance(size, Mapping):
        return False
    if held.get("do_center_crop") and isinstance(crop, Mapping):
        # the reference fills up what is smaller than the crop, in a way of its own
        return bool(max(crop.values()) <= min(size.values()))
    return not held.get("do_center_crop")


def _estimate(see: Callable[[Image.Image], Seen], reference: Any, path: Path) -> Callable[[int, int], int]:
    """Pixels for a width and a height: tried on two shapes, and worked out where those come out different."""
    tall, wide = (
        see(Image.new("RGB", size))["pixel_values"].size // CHANNELS for size in ((32, 64), (96, 32))
    )
    if tall == wide:
        return lambda *_: tall
    size = reference.size
    if not (size.shortest_edge and size.longest_edge):
        raise BadWeights(f"{path}: images resized to {size} are not supported")

    def pixels(width: int, height: int) -> int:
        high, broad = get_size_with_aspect_ratio((height, width), size.shortest_edge, size.longest_edge)
        return int(high) * int(broad)

    return pixels
