"""Images as a model wants to see them: what a directory's preprocessor_config.json says, by Pillow and numpy.

The same arithmetic as the image processors of transformers, whose default ones need torchvision.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from engine.adapters.forward.weights import BadWeights

UNSUPPORTED = ("do_pad", "do_thumbnail", "do_align_long_axis", "do_flip_channel_order", "crop_pct")
"""Steps that some processors have and this one does not: refused when a directory asks for them."""


@dataclass(frozen=True, slots=True)
class ImageProcessor:
    """`size` and `crop` are height and width; `shortest` alone keeps the shape of the image."""

    size: tuple[int, int] | None
    shortest: int | None
    crop: tuple[int, int] | None
    resample: int
    scale: float
    mean: NDArray[np.float32]
    std: NDArray[np.float32]

    @classmethod
    def of(cls, path: Path) -> ImageProcessor:
        """Raises BadWeights where the directory asks for what is not done here."""
        try:
            held: dict[str, Any] = json.loads((path / "preprocessor_config.json").read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise BadWeights(f"{path}/preprocessor_config.json cannot be read: {error}") from error
        if asked := [key for key in UNSUPPORTED if held.get(key)]:
            raise BadWeights(f"{path}: preprocessing with {', '.join(asked)} is not supported")
        size = held["size"] if held.get("do_resize", True) else {}
        crop = held["crop_size"] if held.get("do_center_crop", False) else None
        if held.get("do_resize", True) and not _sides(size) and "shortest_edge" not in _named(size):
            raise BadWeights(f"{path}: images resized to {size} are not supported")
        if not _sides(size) and crop is None:
            raise BadWeights(f"{path}: images of different sizes are not supported")
        normal = held.get("do_normalize", True)
        return cls(
            size=_sides(size),
            shortest=None if _sides(size) else _named(size).get("shortest_edge"),
            crop=_sides(crop) if crop is not None else None,
            resample=int(held.get("resample", Image.Resampling.BILINEAR)),
            scale=float(held.get("rescale_factor", 1 / 255)) if held.get("do_rescale", True) else 1.0,
            mean=np.array(held["image_mean"] if normal else [0.0] * 3, np.float32)[:, None, None],
            std=np.array(held["image_std"] if normal else [1.0] * 3, np.float32)[:, None, None],
        )

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width of every image that comes out."""
        shape = self.crop or self.size
        assert shape is not None, "refused in `of`"
        return shape

    def __call__(self, image: Image.Image) -> NDArray[np.float32]:
        """(3, height, width) of an image in RGB."""
        if self.size is not None:
            image = self._resized(image, *self.size)
        elif self.shortest is not None:
            short, long = sorted(image.size)
            other = int(self.shortest * long / short)
            wide = image.width >= image.height
            image = self._resized(image, *((self.shortest, other) if wide else (other, self.shortest)))
        if self.crop is not None:
            height, width = self.crop
            top, left = (image.height - height) // 2, (image.width - width) // 2
            image = image.crop((left, top, left + width, top + height))
        pixels = np.asarray(image).transpose(2, 0, 1).astype(np.float32) * np.float32(self.scale)
        normal: NDArray[np.float32] = (pixels - self.mean) / self.std
        return normal

    def _resized(self, image: Image.Image, height: int, width: int) -> Image.Image:
        return image.resize((width, height), Image.Resampling(self.resample))


def _named(size: object) -> Mapping[str, int]:
    """Directories from before processors had named sizes hold one number."""
    if isinstance(size, Mapping):
        return size
    return {"shortest_edge": size} if isinstance(size, int) else {}


def _sides(size: object) -> tuple[int, int] | None:
    named = _named(size)
    if "height" in named and "width" in named:
        return int(named["height"]), int(named["width"])
    return None
