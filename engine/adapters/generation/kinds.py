"""How models of each type are shown images: which tiles of one, and what is written in its place."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

import torch
from PIL import Image
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.llava_next.modeling_llava_next import get_anyres_image_grid_shape, unpad_image
from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil
from transformers.models.smolvlm.processing_smolvlm import get_image_prompt_string

from engine.adapters.forward.weights import BadWeights
from engine.adapters.generation.tower import PIXTRAL, Shown, Tower
from engine.adapters.generation.views import Glance

See = Callable[[Tower, Image.Image], Shown]


class Block(Enum):
    """Which tokens of a prompt see each other in both directions, and so are read at once."""

    NONE = "none"
    IMAGE = "image"
    PROMPT = "prompt"


@dataclass(frozen=True, slots=True)
class Kind:
    """How models of one type are shown images."""

    see: See
    token: str
    """What the model reads in the place of each feature of an image."""
    written: str = ""
    """What a template writes in the place of an image, where that is not `token`."""
    among: See | None = None
    """How an image is shown in a prompt with others, where that differs."""
    moving: bool = False
    """Whether tokens have positions in time, height and width."""
    first: int = 0
    """The position of the first token."""
    block: Block = Block.NONE
    template: str | None = None
    """Of a model whose tokenizer has none."""
    images: Any = None
    """The class of its image processor, where transformers does not give it away."""

    @property
    def place(self) -> str:
        """Stands for an image in a rendered prompt."""
        return self.written or self.token


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


def _gridded(tower: Tower, image: Image.Image, token: str) -> Shown:
    """Qwen 2-VL and later, and GLM-OCR and PaddleOCR-VL: patches of an image of any shape, four of which are
    one token."""
    made = tower.process(image)
    pixels, grid = made["pixel_values"], made["image_grid_thw"]
    tokens = len(pixels) // int(tower.images.merge_size) ** 2
    glance = Glance({"pixel_values": pixels, "image_grid_thw": grid}, tokens, len(pixels))
    return Shown((glance,), token * tokens)


def _whole(tower: Tower, image: Image.Image) -> Shown:
    """LLaVA: one image of one size, with or without the token of its class."""
    pixels = tower.process(image)["pixel_values"]
    patches = tower.patches(pixels)
    tokens = patches + tower.classes
    return Shown((Glance({"pixel_values": pixels}, tokens, patches),), "<image>" * tokens)


def _prefixed(tower: Tower, image: Image.Image) -> Shown:
    """PaliGemma: one image of one size, a token a patch."""
    pixels = tower.process(image)["pixel_values"]
    tokens = tower.patches(pixels)
    return Shown((Glance({"pixel_values": pixels}, tokens, tokens),), "<image>" * tokens)


def _framed(tower: Tower, image: Image.Image) -> Shown:
    """Gemma 3: one image of one size, its patches pooled to so many tokens, in a frame of its own.

    Pan and scan, which adds crops of long images and is off by default in the library, is not done.
    """
    pixels = tower.process(image, do_pan_and_scan=False)["pixel_values"]
    tokens = int(tower.config["mm_tokens_per_image"])
    glance = Glance({"pixel_values": pixels}, tokens, tower.patches(pixels))
    return Shown((glance,), f"\n\n<start_of_image>{'<image_soft_token>' * tokens}<end_of_image>\n\n")


def _in_rows(tower: Tower, image: Image.Image) -> Shown:
    """Pixtral and Mistral 3: an image of any shape, row by row, an end to each."""
    side = _side(tower)
    glance, high, wide = _of_any_shape(tower, image, patch_size={"height": side, "width": side})
    return Shown((glance,), "[IMG_BREAK]".join(["[IMG]" * wide] * high) + "[IMG_END]")


def _at_length(tower: Tower, image: Image.Image) -> Shown:
    """LightOnOCR: an image of any shape; a row of patches that is left over is no token's."""
    glance, high, wide = _of_any_shape(tower, image)
    return Shown((glance,), "<|image_pad|>" * (high * wide))


def _of_any_shape(tower: Tower, image: Image.Image, **more: Any) -> tuple[Glance, int, int]:
    """For Pixtral's tower, and how many tokens high and wide it is."""
    made = tower.process(image, **more)
    pixels, sizes = made["pixel_values"], made["image_sizes"]
    high, wide = (int(length) // _side(tower) for length in sizes[0])
    inputs = {"pixel_values": pixels, "image_sizes": sizes}
    return Glance(inputs, high * wide, tower.patches(pixels)), high, wide


def _side(tower: Tower) -> int:
    """Pixels of a token."""
    return int(tower.vision["patch_size"]) * int(tower.config.get("spatial_merge_size", 1))


def _unpadded(tower: Tower, image: Image.Image) -> Shown:
    """LLaVA-NeXT and OneVision: the whole image in one size, then rows of tiles without what pads them, an
    end to each row.

    The tower looks at all of it at once, since features are cut and put together by the model itself.
    """
    made = tower.process(image)
    pixels, sizes = made["pixel_values"], made["image_sizes"]
    patches, size = tower.patches(pixels), sizes[0].tolist()
    tokens = patches + tower.classes + 1
    if pixels.shape[1] > 1:
        high, wide = _rows_of_tiles(tower, size)
        tokens += high * (wide + 1) - 1
    inputs = {"pixel_values": pixels, "image_sizes": sizes}
    return Shown((Glance(inputs, tokens, patches * pixels.shape[1]),), "<image>" * tokens)


def _rows_of_tiles(tower: Tower, size: list[int]) -> tuple[int, int]:
    """Features of an image of this height and width, without what pads them."""
    length = int(tower.vision["image_size"])
    side = length // int(tower.vision["patch_size"])
    rows, cols = get_anyres_image_grid_shape(size, tower.config["image_grid_pinpoints"], length)
    high, wide = unpad_image(torch.empty(1, rows * side, cols * side), size).shape[1:]
    most = tower.config.get("vision_aspect_ratio")
    if most is not None:  # OneVision: fewer where they are more than those of so many tiles
        ratio = math.sqrt(high * wide / (int(most.removeprefix("anyres_max_")) * side**2))
        if ratio > 1.1:
            return int(high // ratio), int(wide // ratio)
    return int(high), int(wide)


def _squared(tower: Tower, image: Image.Image) -> Shown:
    """LLaVA-OneVision, of several images: each is filled up to a square, and none has tiles."""
    made = tower.process([[image, image]])  # what is alone is cut in tiles
    pixels, sizes = made["pixel_values"][:1], made["image_sizes"][:1]
    patches = tower.patches(pixels)
    tokens = patches + tower.classes + 1
    inputs = {"pixel_values": pixels, "image_sizes": sizes, "batch_num_images": made["batch_num_images"]}
    return Shown((Glance(inputs, tokens, patches),), "<image>" * tokens)


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


PREFIX = (
    "{% for m in messages %}{% for part in m.content %}{% if part.type == 'image' %}<image>{% endif %}"
    "{% endfor %}{% endfor %}{{ bos_token }}"
    "{% for m in messages %}{% for part in m.content %}{{ part.text }}{% endfor %}{% endfor %}{{ '\n' }}"
)
"""As PaliGemma's processor writes a prompt: the images first, and the end of a line after the question."""


def _grid(token: str) -> Kind:
    return Kind(partial(_gridded, token=token), token, moving=True)


_QWEN = _grid("<|image_pad|>")
_ROWS = Kind(_in_rows, "[IMG]")
KINDS: Mapping[str, Kind] = {
    "gemma3": Kind(_framed, "<image_soft_token>", "<start_of_image>", block=Block.IMAGE),
    "glm_ocr": _grid("<|image|>"),
    "idefics3": Kind(_tiled, "<image>", images=Idefics3ImageProcessorPil),
    "internvl": Kind(_cropped, "<IMG_CONTEXT>"),
    "lighton_ocr": Kind(_at_length, "<|image_pad|>"),
    "llava": Kind(_whole, "<image>"),
    "llava_next": Kind(_unpadded, "<image>"),
    "llava_onevision": Kind(_unpadded, "<image>", among=_squared),
    "mistral3": _ROWS,
    "paddleocr_vl": _grid("<|IMAGE_PLACEHOLDER|>"),
    "paligemma": Kind(_prefixed, "<image>", first=1, block=Block.PROMPT, template=PREFIX),
    "qwen2_5_vl": _QWEN,
    "qwen2_vl": _QWEN,
    "qwen3_vl": _QWEN,
    "smolvlm": Kind(_tiled, "<image>", images=SmolVLMImageProcessorPil),
}
"""By `model_type`."""


def kind_of(config: Mapping[str, Any]) -> Kind:
    """Raises BadWeights for a model that is shown images in a way that is not known here."""
    if config.get("model_type") == "llava" and config["vision_config"]["model_type"] == PIXTRAL:
        return _ROWS
    found = KINDS.get(str(config.get("model_type")))
    if found is None:
        raise BadWeights(
            f"models of type {config.get('model_type')!r} are not shown images here; "
            f"{', '.join(sorted(KINDS))} are"
        )
    return found
