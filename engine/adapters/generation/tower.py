"""What a vision tower takes of an image, and how many tokens of a prompt that comes to.

Pixels wait as bytes, a quarter of what they are as numbers: they are scaled where the model runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from engine.adapters.generation.views import Glance

PIXTRAL = "pixtral"


@dataclass(frozen=True, slots=True)
class Shown:
    """One image."""

    glances: tuple[Glance, ...]
    spelled: str
    """What stands in the prompt for it, in its place."""

    @property
    def tokens(self) -> int:
        return sum(glance.tokens for glance in self.glances)


@dataclass(frozen=True, slots=True)
class Tower:
    """What a configuration says of a vision tower and its image processor."""

    config: Mapping[str, Any]
    """Of the whole model."""
    images: Any
    """transformers' image processor of the `pil` kind."""

    @property
    def vision(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.config["vision_config"]
        return found

    def process(self, images: Image.Image | list[list[Image.Image]], **more: Any) -> dict[str, Any]:
        """Arrays by name; pixels of 0 to 255 that were resized and cut, and nothing else."""
        made = self.images(images=images, return_tensors="np", do_rescale=False, do_normalize=False, **more)
        found = {
            name: values if name in ("rows", "cols") else np.asarray(values) for name, values in made.items()
        }
        return {**found, "pixel_values": found["pixel_values"].astype(np.uint8)}

    def shrink(self, pixels: int) -> None:
        """Larger images are made so small, where the model takes images of any shape."""
        size = dict(self.images.size)
        if getattr(self.images, "merge_size", None) is not None:
            self.images.size = {**size, "longest_edge": pixels}  # Qwen's name for an area
        elif self.vision["model_type"] == PIXTRAL:
            self.images.size = {"longest_edge": min(math.isqrt(pixels), self._longest)}

    @property
    def classes(self) -> int:
        """Tokens of a LLaVA's image beside those of its patches: its class, or none of that."""
        first = self.vision["model_type"] == "clip_vision_model"
        cut = self.config.get("vision_feature_select_strategy", "default") == "default"
        return int(first) - int(cut)

    def patches(self, pixels: NDArray[np.uint8]) -> int:
        """Of an array whose last axes are height and width."""
        high, wide = sides(self.vision["patch_size"])
        return int(pixels.shape[-2] // high) * int(pixels.shape[-1] // wide)

    def workspace_bytes(self, itemsize: int, context: int) -> int:
        """What the largest glance takes on its way, of a model that reads so many tokens."""
        vision = self.vision
        width = int(vision.get("embed_dim") or vision["hidden_size"])
        inner = int(vision.get("intermediate_size") or width * vision.get("mlp_ratio", 4))
        high, wide = sides(vision["patch_size"])
        # A layer as in a decoder; the outputs of all layers, which some models choose from; pixels as bytes
        # and as numbers.
        layers = int(vision.get("num_hidden_layers") or 0)
        values = (8 + layers) * width + 3 * inner
        pixels = 3 * high * wide * int(vision.get("temporal_patch_size", 1))
        patches = self._most_patches(context)
        mask = (
            2 * patches if vision["model_type"] == PIXTRAL else 0
        )  # it makes one of all by all, in two steps
        return patches * ((values + mask) * itemsize + pixels * (5 + itemsize))

    @property
    def _longest(self) -> int:
        return int(self.images.size["longest_edge"])

    def _most_patches(self, context: int) -> int:
        high, wide = sides(self.vision["patch_size"])
        if (merged := getattr(self.images, "merge_size", None)) is not None:
            return min(self._longest // (high * wide), context * int(merged) ** 2)
        if self.vision["model_type"] == PIXTRAL:
            square = -(-self._longest // high) * -(-self._longest // wide)
            return min(square, context * int(self.config.get("spatial_merge_size", 1)) ** 2)
        tall, broad = sides(self.vision["image_size"])
        grids = self.config.get("image_grid_pinpoints") or ()
        tiles = 1 + max((rows * cols // (tall * broad) for rows, cols in grids), default=0)
        return tiles * (tall // high) * (broad // wide)


def sides(said: Any) -> tuple[int, int]:
    """Height and width, which may be one number."""
    high, wide = said if isinstance(said, list | tuple) else (said, said)
    return int(high), int(wide)
