"""Images as a language model is shown them: what its vision tower takes, and what stands in prompts for them.

Pixels wait as bytes, a quarter of what they are as numbers: they are scaled where the model runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.llava_next.modeling_llava_next import get_anyres_image_grid_shape, unpad_image
from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil
from transformers.models.smolvlm.processing_smolvlm import get_image_prompt_string

from engine.adapters.forward.weights import BadWeights
from engine.adapters.generation.views import Glance
from engine.adapters.preparing.images import decode
from engine.errors import InputTooLong, InvalidInput
from engine.requests import Media


@dataclass(frozen=True, slots=True)
class Shown:
    """One image."""

    glances: tuple[Glance, ...]
    spelled: str
    """What stands in the prompt for it, in place of one image token."""

    @property
    def tokens(self) -> int:
        return sum(glance.tokens for glance in self.glances)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of one prompt."""

    images: int
    tokens: int
    """Those of words and of the answer included."""
    kv_tokens: float
    """What the features of one image token take, in tokens of the KV."""


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

    def process(self, image: Image.Image, **more: Any) -> dict[str, Any]:
        """Arrays by name; pixels of 0 to 255 that were resized and cut, and nothing else."""
        made = self.images(images=image, return_tensors="np", do_rescale=False, do_normalize=False, **more)
        found = {
            name: values if name in ("rows", "cols") else np.asarray(values) for name, values in made.items()
        }
        return {**found, "pixel_values": found["pixel_values"].astype(np.uint8)}

    @property
    def classes(self) -> int:
        """Tokens of a LLaVA's image beside those of its patches: its class, or none of that."""
        first = self.vision["model_type"] == "clip_vision_model"
        cut = self.config.get("vision_feature_select_strategy", "default") == "default"
        return int(first) - int(cut)

    def patches(self, pixels: NDArray[np.uint8]) -> int:
        """Of an array whose last axes are height and width."""
        high, wide = _sides(self.vision["patch_size"])
        return int(pixels.shape[-2] // high) * int(pixels.shape[-1] // wide)

    def workspace_bytes(self, itemsize: int, context: int) -> int:
        """What the largest glance takes on its way, of a model that reads so many tokens."""
        vision = self.vision
        width = int(vision.get("embed_dim") or vision["hidden_size"])
        inner = int(vision.get("intermediate_size") or width * vision.get("mlp_ratio", 4))
        high, wide = _sides(vision["patch_size"])
        # A layer as in a decoder; the outputs of all layers, which some models choose from; pixels as bytes
        # and as numbers.
        layers = int(vision.get("num_hidden_layers") or 0)
        values = (8 + layers) * width + 3 * inner
        pixels = 3 * high * wide * int(vision.get("temporal_patch_size", 1))
        return self._most_patches(context) * (values * itemsize + pixels * (5 + itemsize))

    def _most_patches(self, context: int) -> int:
        high, wide = _sides(self.vision["patch_size"])
        if (merged := getattr(self.images, "merge_size", None)) is not None:
            return min(int(self.images.size["longest_edge"]) // (high * wide), context * int(merged) ** 2)
        tall, broad = _sides(self.vision["image_size"])
        grids = self.config.get("image_grid_pinpoints") or ()
        tiles = 1 + max((rows * cols // (tall * broad) for rows, cols in grids), default=0)
        return tiles * (tall // high) * (broad // wide)


def _sides(said: Any) -> tuple[int, int]:
    """Height and width, which may be one number."""
    high, wide = said if isinstance(said, list | tuple) else (said, said)
    return int(high), int(wide)


See = Callable[[Tower, Image.Image], Shown]


def _tiled(tower: Tower, image: Image.Image) -> Shown:
    """Idefics3 and SmolVLM: tiles of one size in rows, then the whole image in that size."""
    made = tower.process(image, return_row_col_info=True)
    (rows,), (cols,) = made["rows"][0], made["cols"][0]
    pixels = made["pixel_values"]
    patches = tower.patches(pixels)
    tokens = patches // int(tower.config["scale_factor"]) ** 2
    spelled = get_image_prompt_string(
        rows, cols, tokens, "<fake_token_around_image>", "<image>", "<global-img>"
    )
    glances = [
        Glance({"pixel_values": pixels[:, at : at + 1].copy()}, tokens, patches)
        for at in range(pixels.shape[1])
    ]
    return Shown(tuple(glances), spelled)


def _gridded(tower: Tower, image: Image.Image) -> Shown:
    """Qwen 2-VL and later: patches of an image of any shape, four of which are one token."""
    made = tower.process(image)
    pixels, grid = made["pixel_values"], made["image_grid_thw"]
    tokens = len(pixels) // int(tower.images.merge_size) ** 2
    glance = Glance({"pixel_values": pixels, "image_grid_thw": grid}, tokens, len(pixels))
    return Shown((glance,), "<|image_pad|>" * tokens)


def _whole(tower: Tower, image: Image.Image) -> Shown:
    """LLaVA: one image of one size, with or without the token of its class."""
    pixels = tower.process(image)["pixel_values"]
    patches = tower.patches(pixels)
    tokens = patches + tower.classes
    return Shown((Glance({"pixel_values": pixels}, tokens, patches),), "<image>" * tokens)


def _unpadded(tower: Tower, image: Image.Image) -> Shown:
    """LLaVA-NeXT: the whole image in one size, then rows of tiles without what pads them, an end to each row.

    The tower looks at all of it at once, since features are cut and put together by the model itself.
    """
    made = tower.process(image)
    pixels, sizes = made["pixel_values"], made["image_sizes"]
    patches, size = tower.patches(pixels), sizes[0].tolist()
    tokens = patches + tower.classes + 1
    if pixels.shape[1] > 1:
        side = int(tower.vision["image_size"]) // int(tower.vision["patch_size"])
        grid = tower.config["image_grid_pinpoints"]
        rows, cols = get_anyres_image_grid_shape(size, grid, int(tower.vision["image_size"]))
        high, wide = unpad_image(torch.empty(1, rows * side, cols * side), size).shape[1:]
        tokens += int(high * (wide + 1)) - 1
    inputs = {"pixel_values": pixels, "image_sizes": sizes}
    return Shown((Glance(inputs, tokens, patches * pixels.shape[1]),), "<image>" * tokens)


def _cropped(tower: Tower, image: Image.Image) -> Shown:
    """InternVL: tiles of one size, and the whole image in that size where there are several."""
    pixels = tower.process(image, crop_to_patches=True)["pixel_values"]
    patches = tower.patches(pixels)
    tokens = round(patches * float(tower.config["downsample_ratio"]) ** 2)
    spelled = "<IMG_CONTEXT>" * (tokens * len(pixels))
    glances = [
        Glance({"pixel_values": pixels[at : at + 1].copy()}, tokens, patches) for at in range(len(pixels))
    ]
    return Shown(tuple(glances), f"<img>{spelled}</img>")


@dataclass(frozen=True, slots=True)
class Kind:
    """How models of one type are shown images."""

    see: See
    token: str
    """Stands for an image in a rendered prompt, and for each token of it in what the model reads."""
    moving: bool = False
    """Whether tokens have positions in time, height and width."""
    images: Any = None
    """The class of its image processor, where transformers does not give it away."""


_QWEN = Kind(_gridded, "<|image_pad|>", moving=True)
KINDS: Mapping[str, Kind] = {
    "idefics3": Kind(_tiled, "<image>", images=Idefics3ImageProcessorPil),
    "internvl": Kind(_cropped, "<IMG_CONTEXT>"),
    "llava": Kind(_whole, "<image>"),
    "llava_next": Kind(_unpadded, "<image>"),
    "qwen2_5_vl": _QWEN,
    "qwen2_vl": _QWEN,
    "qwen3_vl": _QWEN,
    "smolvlm": Kind(_tiled, "<image>", images=SmolVLMImageProcessorPil),
}
"""By `model_type`."""


def kind_of(config: Mapping[str, Any]) -> Kind:
    """Raises BadWeights for a model that is shown images in a way that is not known here."""
    found = KINDS.get(str(config.get("model_type")))
    if found is None:
        raise BadWeights(
            f"models of type {config.get('model_type')!r} are not shown images here; "
            f"{', '.join(sorted(KINDS))} are"
        )
    return found


class Eyes:
    """One model's way of being shown images. May be used by several threads at once."""

    def __init__(self, tower: Tower, kind: Kind, token: int, bounds: Bounds) -> None:
        """`token`: the id of its image token."""
        self._tower = tower
        self._kind = kind
        self._token = token
        self._bounds = bounds

    def see(self, images: Sequence[Media]) -> list[Shown]:
        """Decodes them, and makes them what the vision tower takes. Raises InvalidInput, InputTooLong."""
        bounds = self._bounds
        if len(images) > bounds.images:
            raise InvalidInput(f"the prompt has {len(images)} images; at most {bounds.images} are taken")
        shown: list[Shown] = []
        tokens = 0
        for at, image in enumerate(images):
            shown.append(self._one(image, at))
            tokens += shown[-1].tokens
            if tokens >= bounds.tokens:
                raise InputTooLong(
                    f"the first {at + 1} images take {tokens} tokens; the model takes {bounds.tokens}, text "
                    "and answer included. Send fewer, or smaller ones",
                    length=tokens,
                    max_length=bounds.tokens,
                )
        return shown

    def check(self, ids: Sequence[int], shown: Sequence[Shown]) -> None:
        """Raises InvalidInput unless every image has its place in the prompt."""
        wanted, there = sum(each.tokens for each in shown), sum(token == self._token for token in ids)
        if wanted != there:
            raise InvalidInput(
                f"the images take {wanted} tokens and the prompt has places for {there}; tokens that stand "
                "for images cannot be sent by themselves"
            )

    def kv_tokens(self, shown: Sequence[Shown]) -> int:
        """What the features of images take until they are read, in tokens of the KV."""
        return math.ceil(self._bounds.kv_tokens * sum(each.tokens for each in shown))

    def _one(self, media: Media, at: int) -> Shown:
        try:
            image = decode(media)
            return self._kind.see(self._tower, image)
        except InvalidInput as error:
            raise InvalidInput(f"image {at}: {error.message}") from error
        except ValueError as error:  # a shape that the processor refuses
            raise InvalidInput(f"image {at} cannot be shown to this model: {str(error)[:200]}") from error
