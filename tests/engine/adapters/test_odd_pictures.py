"""Pictures at the edges of what can be sent, through the image processor of every family that takes one: what
the network is given has the size that was paid for, and its numbers are numbers.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from transformers.models.bit.image_processing_pil_bit import BitImageProcessorPil
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.convnext.image_processing_pil_convnext import ConvNextImageProcessorPil
from transformers.models.detr.image_processing_pil_detr import DetrImageProcessorPil
from transformers.models.donut.image_processing_pil_donut import DonutImageProcessorPil
from transformers.models.grounding_dino.image_processing_pil_grounding_dino import (
    GroundingDinoImageProcessorPil,
)
from transformers.models.owlv2.image_processing_pil_owlv2 import Owlv2ImageProcessorPil
from transformers.models.owlvit.image_processing_pil_owlvit import OwlViTImageProcessorPil
from transformers.models.rt_detr.image_processing_pil_rt_detr import RTDetrImageProcessorPil
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil
from transformers.models.yolos.image_processing_pil_yolos import YolosImageProcessorPil

from engine.adapters.vision.pictures import Look, picture, see
from engine.adapters.vision.processors import CHANNELS, Processor
from engine.errors import EngineError, InvalidInput
from engine.requests import Media

BOUNDED = {"shortest_edge": 64, "longest_edge": 128}
SQUARE = {"height": 64, "width": 64}
PROCESSORS: dict[str, Any] = {
    "clip": CLIPImageProcessorPil(size={"shortest_edge": 64}, crop_size=SQUARE),
    "bit": BitImageProcessorPil(size={"shortest_edge": 72}, crop_size=SQUARE),
    "vit": ViTImageProcessorPil(size=SQUARE),
    "convnext": ConvNextImageProcessorPil(size={"shortest_edge": 64}, crop_pct=0.875),
    "detr": DetrImageProcessorPil(size=BOUNDED),
    "yolos": YolosImageProcessorPil(size=BOUNDED),
    "rt-detr": RTDetrImageProcessorPil(size=SQUARE),
    "grounding": GroundingDinoImageProcessorPil(size=BOUNDED),
    "owl-vit": OwlViTImageProcessorPil(size=SQUARE),
    "owl-v2": Owlv2ImageProcessorPil(size=SQUARE),
    "donut": DonutImageProcessorPil(size={"height": 64, "width": 32}),
}
"""Of the image families; `page` and the models of documents decode as these do."""


def _saved(mode: str, size: tuple[int, int], form: str = "PNG", **how: Any) -> bytes:
    out = io.BytesIO()
    Image.new(mode, size, "white" if mode != "F" else 0).save(out, form, **how)
    return out.getvalue()


def _turned() -> bytes:
    exif = Image.Exif()
    exif[0x0112] = 6
    return _saved("RGB", (60, 40), "JPEG", exif=exif)


PICTURES = {
    "cmyk": _saved("CMYK", (50, 40), "JPEG"),
    "turned": _turned(),
    "one pixel": _saved("L", (1, 1)),
    "a strip": _saved("RGB", (600, 3)),
    "a tower": _saved("RGB", (2, 400)),
    "a palette": _saved("P", (33, 17)),
    "two colours": _saved("1", (9, 300)),
    "transparent": _saved("RGBA", (40, 40)),
    "sixteen bits": _saved("I;16", (20, 30)),
}
LINES = {"a line": _saved("L", (1, 20_000)), "a long line": _saved("1", (1_000_000, 1))}


@pytest.fixture(scope="module", params=PROCESSORS)
def processor(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Processor:
    path = tmp_path_factory.mktemp(request.param)
    PROCESSORS[request.param].save_pretrained(path)
    return Processor.of(path)


@pytest.mark.parametrize("name", PICTURES)
def test_an_odd_picture_is_seen_as_large_as_it_was_paid_for_or_refused(
    processor: Processor, name: str
) -> None:
    """`good` is what stands beside it in the batch."""
    odd, good = (picture(processor, Media(data), 0) for data in (PICTURES[name], PICTURES["turned"]))
    paid = {odd.source: odd.pixels, good.source: good.pixels}
    looked: list[Look] = []

    def forward(looks: Sequence[Look], inputs: Mapping[str, Tensor]) -> list[str | EngineError]:
        looked.extend(looks)
        return ["seen"] * len(looks)

    model: Any = torch.nn.Linear(1, 1)
    model.device, model.dtype = torch.device("cpu"), torch.float32
    first, second = see(processor, model, [odd, good], forward)

    assert second == "seen"
    assert first == "seen" or (
        isinstance(first, InvalidInput) and name in ("a strip", "a tower", "two colours")
    )
    for look in looked:
        pixels = look.seen["pixel_values"]
        assert np.isfinite(pixels).all() and pixels.shape[0] == CHANNELS
        assert pixels.size <= CHANNELS * paid[look.width * look.height]


@pytest.mark.parametrize("name", LINES)
def test_a_line_is_no_picture(processor: Processor, name: str) -> None:
    with pytest.raises(InvalidInput, match="is a line of"):
        picture(processor, Media(LINES[name]), 0)
